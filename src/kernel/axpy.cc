// Simple loops that the compiler vectorises by itself: no reduction, no branch.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/axpy.h"

#include "kernel/parts.h"

namespace thinwire::kernel {

void scale(std::span<float> values, float factor) noexcept {
  parallel_for(values.size(), kPartUnit, [&](size_t begin, size_t end) {
    for (float& value : values.subspan(begin, end - begin)) value *= factor;
  });
}

void fill(std::span<float> values, float value) noexcept {
  parallel_for(values.size(), kPartUnit, [&](size_t begin, size_t end) {
    for (float& one : values.subspan(begin, end - begin)) one = value;
  });
}

}  // namespace thinwire::kernel
