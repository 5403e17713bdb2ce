// Values on an even grid per block, rounded to nearest or at random: what uniform, acsgd, qsgd and
// terngrad put on the wire. Bit-identical on every SIMD target.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/random.h"
#include "kernel/code_bits.h"

namespace thinwire::kernel {

// Where the grid of a block comes from. A code c of `bits` bits in two's complement, -2^(bits-1) to
// 2^(bits-1) - 1, stands for
enum class GridRule {
  kMinMax,  // mid + (c + 1/2) step: from the smallest to the largest value; f32 mid, f32 step
  kHalf,    // c scale / 2^(bits-1): scale = largest magnitude in binary16; f16 scale
  kMax,     // c scale: scale = largest magnitude / levels; f32 scale
  kNorm,    // c scale: scale = square root of the sum of squares / levels; f32 scale
  kClip,    // c scale: scale = largest magnitude, or `clip` standard deviations about the mean if
            // that is less and not 0; f32 scale
};

// How values are cut: every `block` of them, the last block may be shorter, takes its grid and then
// the codes, as pack_codes packs them.
// REQUIRES: block a multiple of 8, or one block for all; 1 <= bits <= 8, 2 at least unless kMinMax.
struct GridBlocks {
  size_t block;
  size_t bits;
  GridRule rule;
  float levels = 1;  // s: kMax and kNorm use codes from -s to s, kClip from -1 to 1
  float clip = 0;    // 0: none

  constexpr size_t header() const noexcept {
    return rule == GridRule::kMinMax ? 8 : rule == GridRule::kHalf ? 2 : 4;
  }
  constexpr size_t count(size_t values) const noexcept { return (values + block - 1) / block; }
  constexpr size_t size(size_t count) const noexcept {
    return count / block * (header() + code_bytes(block, bits)) +
           (count % block == 0 ? 0 : header() + code_bytes(count % block, bits));
  }
};

// Draws of a stretch of values: value i takes random_half(key, position + i) / 2, fifteen bits.
struct Dither {
  RandomKey key;
  uint64_t position = 0;
};

// A value lies at t = (x - mid) (1 / step) - 1/2 or x (1 / scale), in f32 arithmetic, and t is kept
// within the range of codes; kHalf has x (2^(bits-1) / (scale + 1e-6)), 1e-6 and the sum in
// binary16. Without `dither` its code is t rounded to nearest, ties to even; with it floor(t + u),
// u = draw / 2^15 and t rounded to a multiple of 2^-15 first: the mean over draws is t to within
// 2^-16, and a value on the grid is always itself. Steps and scales below 2^-126 become 0, and then
// every value mid, or 0. A non-empty `rest` receives x - value; it is as long as `values` and may
// be `values`. Non-empty `scales` of kMax, kNorm or kClip, one for each block, stand in for those
// of the values. REQUIRES: finite values; bytes.size() == blocks.size(values.size()); scales at
// least +0, finite.
void quantise_grid(std::span<const float> values, const GridBlocks& blocks, const Dither* dither,
                   std::span<std::byte> bytes, std::span<float> rest = {},
                   std::span<const float> scales = {}) noexcept;

// The scale of each block as quantise_grid writes it. REQUIRES: kMax, kNorm or kClip.
void grid_scales(std::span<const float> values, const GridBlocks& blocks,
                 std::span<float> scales) noexcept;

// out[i] += weight x value, for kMinMax and kHalf; add_blocks (scaled_blocks.h) reads the others.
// Returns false, `out` then being unspecified, unless scales and steps are at least +0, and scale,
// or |mid| + (2^bits - 1) / 2 x step, is finite. REQUIRES: bytes.size() == blocks.size(out.size()).
bool add_grid(std::span<const std::byte> bytes, const GridBlocks& blocks, float weight,
              std::span<float> out) noexcept;

}  // namespace thinwire::kernel
