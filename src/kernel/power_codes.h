// Values rounded at random to powers of two: what natural puts on the wire. Bit-identical on every
// SIMD target.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "kernel/grid_blocks.h"

namespace thinwire::kernel {

// Every 8 values take eight bytes, a byte each for the exponent as it stands in an fp32 (0 for 0, e
// for 2^(e - 127)), and a byte of signs, 1 = negative, from bit 0 up. Fewer values at the end take
// fewer exponents.
constexpr size_t power_bytes(size_t count) noexcept { return count + (count + 7) / 8; }

// A magnitude between two powers of two becomes the upper one with probability (its mantissa
// rounded to sixteen bits, draw apart): the mean over draws is the magnitude to within 2^-16 of it.
// Below 2^-126 the powers are 0 and 2^-126; above 2^127 it becomes 2^127. A non-empty `rest`
// receives x - value; it is as long as `values` and may be `values`. REQUIRES: finite values;
// bytes.size() == power_bytes(values.size()).
void round_to_powers(std::span<const float> values, const Dither& dither,
                     std::span<std::byte> bytes, std::span<float> rest = {}) noexcept;

// out[i] += weight x value. Returns false, `out` then being unspecified, if an exponent is 255.
// Unused bits are not looked at. REQUIRES: bytes.size() == power_bytes(out.size()).
bool add_powers(std::span<const std::byte> bytes, float weight, std::span<float> out) noexcept;

}  // namespace thinwire::kernel
