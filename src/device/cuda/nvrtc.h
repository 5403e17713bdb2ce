// NVRTC, CUDA's compiler for kernel texts at run time, found where a Python package or a toolkit
// has it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "device/cuda/shared_library.h"

namespace thinwire::device {

struct Compiled {
  std::string cubin;  // machine code of one architecture
  std::string ptx;    // its assembly text, for tests to read
};

class Nvrtc {
 public:
  // Looks in `folders` first, such as that of the package nvidia-cuda-nvrtc in site-packages, then
  // beside a libtorch that the process has loaded, then where the system looks. Throws
  // Error(kUnsupported), which says what to install.
  explicit Nvrtc(const std::vector<std::string>& folders = {});

  // "13.5"
  std::string version() const;

  // Compiles for "sm_90" and the like. Throws Error(kUnsupported) for an architecture that this
  // NVRTC does not know, and Error(kContract) with the compiler's text if the source is wrong.
  Compiled compile(std::string_view name, const std::string& source,
                   std::string_view architecture) const;

  // What it is called with, besides the architecture: nothing is fused, rounded less exactly or
  // flushed to zero.
  static const std::vector<std::string>& options();

 private:
  SharedLibrary library_;
};

}  // namespace thinwire::device
