// The k-th largest magnitude of a vector, exactly.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace thinwire::kernel {

struct KthMagnitude {
  float magnitude = 0;  // the k-th largest |x|, equal ones counted one by one
  size_t above = 0;     // how many are larger: fewer than k
};

// Reads the values three times and needs no memory.
// REQUIRES: 1 <= k <= values.size() < 2^32; no NaN.
KthMagnitude kth_magnitude(std::span<const float> values, size_t k) noexcept;

}  // namespace thinwire::kernel
