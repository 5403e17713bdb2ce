// Sums over a vector in one pass: the moments that thresholds and scales come from.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "thinwire/moments.h"

namespace thinwire::kernel {

// Sum of |x|, sum of x^2, largest |x| and finiteness. Squares are exact and sums are kept in
// double: no finite input overflows, and scaling every value by a power of two scales the sums by
// exactly it and its square. The same bits on every SIMD target.
Moments moments(std::span<const float> values) noexcept;

// out[i] = a[i] + b[i]; returns moments(out), the same bits, at no extra read of memory. `out` may
// be `a` or `b`. REQUIRES: three spans of one length.
Moments add_with_moments(std::span<const float> a, std::span<const float> b,
                         std::span<float> out) noexcept;

// Sum of x, in double, in the order of moments: the sum of a vector is that of its parts of
// kSumChunk values, added in order. The same bits on every SIMD target.
inline constexpr size_t kSumChunk = 8192;
double value_sum(std::span<const float> values) noexcept;

}  // namespace thinwire::kernel
