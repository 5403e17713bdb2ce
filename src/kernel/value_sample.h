// A sample of a vector, spread evenly over it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace thinwire::kernel {

// Fills `sample` with one value from each of sample.size() equal stretches of `values` (what is
// left over at the end is not looked at). The place differs from stretch to stretch: rows of a
// matrix must not line up with the sample. Another `phase` moves all places.
// REQUIRES: sample is no longer than values; both shorter than 2^32.
void sample_values(std::span<const float> values, uint32_t phase, std::span<float> sample) noexcept;

}  // namespace thinwire::kernel
