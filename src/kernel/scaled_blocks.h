// Blocks of small signed integers under a scale each: what int8 and int4 put on the wire.
// Bit-identical on every SIMD target.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "kernel/code_bits.h"

namespace thinwire::kernel {

// How values are cut: every `block` of them, the last block may be shorter, takes
//
//   f32 scale
//       codes   of `bits` bits, two's complement, as pack_codes packs them
//
// With m = 2^(bits-1) - 1, a code is -m to m and stands for code x scale.
// REQUIRES: 2 <= bits <= 8; block a multiple of 8.
struct ScaledBlocks {
  size_t block;
  size_t bits;

  constexpr size_t size(size_t count) const noexcept {
    return count / block * (sizeof(float) + code_bytes(block, bits)) +
           (count % block == 0 ? 0 : sizeof(float) + code_bytes(count % block, bits));
  }
};

// In f32 arithmetic, with max the largest magnitude of a block:
//
//   scale = max / m, rounded to nearest; the float below if m x that would overflow;
//           0 if it is below 2^-126, and then all codes are 0
//   code  = x (1 / scale), rounded to nearest whole, ties to even
//
// Two roundings precede the last: |x - code x scale| <= (1/2 + m 2^-22) scale.
// A non-empty `rest` receives x - code x scale; it is as long as `values` and may be `values`.
// REQUIRES: finite values; bytes.size() == blocks.size(values.size()).
void quantise_blocks(std::span<const float> values, ScaledBlocks blocks, std::span<std::byte> bytes,
                     std::span<float> rest = {}) noexcept;

// out[i] += code x (weight x scale). Returns false, `out` then being unspecified, unless every
// scale is at least +0 and m x scale finite, and no code is -m - 1. Unused bits are not looked at.
// REQUIRES: bytes.size() == blocks.size(out.size()).
bool add_blocks(std::span<const std::byte> bytes, ScaledBlocks blocks, float weight,
                std::span<float> out) noexcept;

}  // namespace thinwire::kernel
