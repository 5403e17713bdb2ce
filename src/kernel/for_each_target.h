// Forces every SIMD target that this machine can run, one after another, so that tests can compare
// them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

namespace thinwire::kernel {

// Calls body("AVX2") and so on, worst target first, while all kernels use that target. Ends with
// the machine's own choice. Not while other threads run kernels.
void for_each_target(const std::function<void(std::string_view target)>& body);

}  // namespace thinwire::kernel
