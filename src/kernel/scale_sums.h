// Scales a vector that came from elsewhere, and says whether it is finite.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace thinwire::kernel {

// values[i] *= factor. Returns whether all products are finite. One pass over memory.
bool scale_sums(std::span<float> values, float factor) noexcept;

}  // namespace thinwire::kernel
