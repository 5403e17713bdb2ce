// Compiled kernels on disk, so that only the first run on a machine compiles them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace thinwire::device {

// Where kernels are kept: $THINWIRE_CACHE, or thinwire in $XDG_CACHE_HOME or ~/.cache; empty if
// none is set.
std::filesystem::path kernel_cache_folder();

// What a compiled text depends on.
struct KernelKey {
  std::string_view name;          // the text's
  std::string_view source;        // all that is compiled
  std::string_view options;       // of the compiler
  std::string_view compiler;      // its version
  std::string_view architecture;  // "sm_90"
};

// The machine code under this key: from `folder`, or from `compile`, and then it is kept there. A
// file that is damaged or of another key is replaced. A folder that cannot be written, or is empty,
// costs time alone.
std::string cached_kernel(const std::filesystem::path& folder, const KernelKey& key,
                          const std::function<std::string()>& compile);

}  // namespace thinwire::device
