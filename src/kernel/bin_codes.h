// AdaComp's codes: which elements of a bin are sent, and their signs, in one or two bytes each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace thinwire::kernel {

// A code is, from the lowest bit: the offset in the bin, the sign (1 = negative), and whether it is
// the last one of its bin. So bins need no delimiter. An empty bin is one code, kEmpty.
template <typename Code>
struct BinCode {
  static constexpr Code kLast = Code(1) << (std::numeric_limits<Code>::digits - 1);
  static constexpr Code kNegative = kLast >> 1;
  static constexpr Code kOffset = kNegative - 1;  // mask of the offset
  static constexpr Code kEmpty = kLast | kOffset;
};

// An offset of all ones is taken by kEmpty, so bins go up to 63 and 16,383.
inline constexpr size_t kMaxByteBin = BinCode<uint8_t>::kOffset;
inline constexpr size_t kMaxBin = BinCode<uint16_t>::kOffset;

// Bytes of a code.
constexpr size_t bin_code_size(size_t bin) { return bin <= kMaxByteBin ? 1 : 2; }

struct BinSelection {
  size_t size = 0;     // bytes of codes
  size_t kept = 0;     // elements selected; a bin without any costs a code, too
  double max_sum = 0;  // sum over bins of the largest |G|, in the order of docs/determinism.md
};

// Cuts G into bins of `bin` (the last may be shorter) and writes the codes of the elements with
// G != 0 and |G + factor * fresh| >= the largest |G| of their bin.
// REQUIRES: finite values; fresh as long as G; 1 <= bin <= kMaxBin; room for bin_code_size(bin)
// bytes per value.
BinSelection select_bins(std::span<const float> g, std::span<const float> fresh, float factor,
                         size_t bin, std::span<std::byte> codes) noexcept;

// out[i] += +-magnitude for every code, and the bytes that all bins of `out` took; nothing when the
// codes are cut off or break a rule: offsets inside the bin, growing, an empty bin exactly kEmpty.
// `codes` may be any bytes, and go on after the last bin.
std::optional<size_t> add_bins(std::span<const std::byte> codes, size_t bin, float magnitude,
                               std::span<float> out) noexcept;

}  // namespace thinwire::kernel
