// Puts together the text that NVRTC compiles.
// SPDX-License-Identifier: Apache-2.0
#include "device/kernel_texts.h"

#include "thinwire/status.h"

namespace thinwire::device {

// Both are in the file that CMake writes.
extern const std::string_view kCudaPrelude;
extern const std::string_view kCommonText;

std::string source_for_gpu(std::string_view text) {
  std::string choices;
  for (const KernelText& known : kernel_texts()) {
    if (known.name == text)
      return std::string(kCudaPrelude) + std::string(kCommonText) + std::string(known.source);
    choices += (choices.empty() ? "" : ", ") + std::string(known.name);
  }
  throw Error(ErrorCode::kUnknownName,
              "device: no kernel text '" + std::string(text) + "'; there are " + choices);
}

}  // namespace thinwire::device
