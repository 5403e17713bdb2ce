// keep_freed_memory.
// SPDX-License-Identifier: Apache-2.0
#include "cli/kept_memory.h"

#include <cstdlib>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace thinwire::cli {

void keep_freed_memory() {
#if defined(__GLIBC__)
  for (const char* name :
       {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES"})
    if (std::getenv(name) != nullptr) return;
  constexpr int kMegabyte = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, 32 * kMegabyte);  // the largest that glibc takes
  mallopt(M_TRIM_THRESHOLD, 256 * kMegabyte);
#endif
}

}  // namespace thinwire::cli
