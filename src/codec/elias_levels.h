// Whole numbers most of which are 0, as gaps, signs and magnitudes in Elias's gamma code.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace thinwire {

// gamma(v), v >= 1: floor(log2 v) bits 0, a bit 1, and the floor(log2 v) low bits of v from the least
// significant up. For every level that is not 0, in order, the string holds
//
//   gamma(gap)     positions since the last such level; counted from position -1 for the first
//   sign           1 = negative
//   gamma(|level|)
//
// and then gamma(gap to the position after the last). Bits fill each byte from bit 0 up, those after
// the end are 0.

// Upper bound on the bytes of `count` levels of magnitude `most` or less. With G bits for `most`, a
// value takes no more than 2 + G bits: a gap of g stands for g - 1 zeros, which might have cost more.
size_t max_elias_size(size_t count, unsigned most) noexcept;

// Writes the string and returns its bytes. `out` is as large as max_elias_size says.
size_t write_elias(std::span<const int8_t> levels, std::span<std::byte> out) noexcept;

// Calls take(position, level) for every level of `count` that is not 0 and returns the bytes of the
// string, which other bytes may follow. No result if the bytes end early, or if a position, a
// magnitude above `most`, or a bit after the end breaks a rule.
std::optional<size_t> read_elias(std::span<const std::byte> bytes, size_t count, unsigned most,
                                 const std::function<void(size_t, int)>& take);

}  // namespace thinwire
