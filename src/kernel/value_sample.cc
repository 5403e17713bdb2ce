// Sampling at places by the golden ratio: neighbouring parts never use similar places.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/value_sample.h"

#include <cassert>

namespace thinwire::kernel {

void sample_values(std::span<const float> values, uint32_t phase,
                   std::span<float> sample) noexcept {
  assert(sample.size() <= values.size());
  if (sample.empty()) return;
  const uint64_t stretch = values.size() / sample.size();
  for (uint32_t i = 0; i < sample.size(); ++i) {
    const uint32_t scattered = phase + i * 2654435769u;  // multiples of the golden ratio of 2^32
    sample[i] = values[i * stretch + (scattered * stretch >> 32)];
  }
}

}  // namespace thinwire::kernel
