// Scale and add over whole vectors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace thinwire::kernel {

// values[i] *= factor.
void scale(std::span<float> values, float factor) noexcept;

}  // namespace thinwire::kernel
