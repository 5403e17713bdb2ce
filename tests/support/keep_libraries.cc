// For programs under a sanitizer: libraries that were loaded stay loaded. Open MPI unloads its
// components before the program ends. ThreadSanitizer stops when a library that it was told to
// ignore goes, and AddressSanitizer has no name for what such a library left behind, so that no
// suppression could name it.
// SPDX-License-Identifier: Apache-2.0

extern "C" __attribute__((visibility("default"))) int dlclose(void* /*library*/) noexcept {
  return 0;
}
