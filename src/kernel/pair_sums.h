// Sums over the values of two vectors: their squared distance, and their product.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace thinwire::kernel {

// The sum of (a[i] - b[i])^2. Differences are rounded to float, and one that overflows gives
// infinity. The sum is in double, over fixed lanes and chunks: the same bits on every SIMD target.
// REQUIRES: a.size() == b.size().
double square_distance(std::span<const float> a, std::span<const float> b) noexcept;

// The sum of a[i] b[i], likewise. A product of two floats is exact in double.
double product(std::span<const float> a, std::span<const float> b) noexcept;

}  // namespace thinwire::kernel
