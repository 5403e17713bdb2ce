// The Walsh-Hadamard transform, and random signs. Bit-identical on every SIMD target.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace thinwire::kernel {

// Replaces n values by values'[u] = sum over x of (-1)^popcount(u & x) values[x], which is sqrt(n)
// times an orthonormal transform and n times its own inverse. In stages of distance 1, 2, 4, ... n
// / 2, in this order, each pair (a, b) of values at that distance becomes (a + b, a - b), rounded
// to float. REQUIRES: n is a power of two.
void walsh_hadamard(std::span<float> values) noexcept;

// out[i] = values[i], with the other sign where bit i % 32 of bits[i / 32] is 1. `out` may be
// `values`. REQUIRES: bits.size() >= values.size() / 32, rounded up; out.size() == values.size().
void flip_signs(std::span<const uint32_t> bits, std::span<const float> values,
                std::span<float> out) noexcept;

}  // namespace thinwire::kernel
