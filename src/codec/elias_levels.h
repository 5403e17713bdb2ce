// Elias strings: whole numbers, mostly 0, as gaps, signs and magnitudes in Elias's gamma code.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace thinwire {

// gamma(v), v >= 1: floor(log2 v) bits 0, a bit 1, and the floor(log2 v) low bits of v from the
// least significant up. For every level that is not 0, in order, the string holds
//
//   gamma(gap)     positions since the last such level; counted from position -1 for the first
//   sign           1 = negative
//   gamma(|level|)
//
// and then gamma(gap to the position after the last). Bits fill each byte from bit 0 up, those
// after the end are 0. REQUIRES, below: at most 2^16 levels, of magnitude 2^16 or less.

// Upper bound on the bytes of `count` levels of magnitude `most` or less. With G bits for `most`, a
// value takes no more than 2 + G bits: a gap of g stands for g - 1 zeros, which might have cost
// more.
size_t max_elias_size(size_t count, unsigned most) noexcept;

struct EliasSize {
  size_t size = 0;  // bytes
  size_t kept = 0;  // levels that are not 0
};

// Writes the string of levels that lie as codes of `bits` bits, two's complement, one in each byte,
// upper bits 0. `out` is as large as max_elias_size says.
EliasSize write_elias(std::span<const uint8_t> codes, size_t bits,
                      std::span<std::byte> out) noexcept;

// out[i] += level x scale for every level that is not 0. Returns the bytes of the string, which
// other bytes may follow; none if the bytes end early, or if a position, a magnitude above `most`,
// or a bit after the end breaks a rule, and `out` is then unspecified.
std::optional<size_t> add_elias(std::span<const std::byte> bytes, unsigned most, float scale,
                                std::span<float> out) noexcept;

}  // namespace thinwire
