// Loops that the compiler vectorises by itself: no reduction, no branch.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/axpy.h"

namespace thinwire::kernel {

void scale(std::span<float> values, float factor) noexcept {
  for (float& value : values) value *= factor;
}

}  // namespace thinwire::kernel
