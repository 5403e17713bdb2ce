// The kernel texts of src/device/texts, as part of the library.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace thinwire::device {

struct KernelText {
  std::string_view name;    // the file's, without .cu
  std::string_view source;  // without the prelude
};

// All texts but the prelude and the part that all have in common. CMake writes the table:
// embed_texts.cmake.
std::span<const KernelText> kernel_texts() noexcept;

// What a compiler for GPUs is given: prelude, common part, text.
// Throws Error(kUnknownName), which names the choices, for a name that is none.
std::string source_for_gpu(std::string_view text);

}  // namespace thinwire::device
