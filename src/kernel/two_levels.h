// One bit per value and two levels per block: what sign and onebit put on the wire. Bit-identical
// on every SIMD target.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "kernel/code_bits.h"

namespace thinwire::kernel {

// What the two values are that bits stand for: `high` for a clear bit, `low` for a set one.
struct Levels {
  float high = 0;
  float low = 0;
};

enum class LevelRule {
  kMagnitude,  // high = mean of |x|, low = -high; on the wire f32 high
  kMeans,      // the means of those values that are at least 0 and of those below, 0 where there
               // are none; on the wire f32 high, f32 low
};

// How values are cut: every `block` of them, the last block may be shorter, takes its levels and
// then a bit per value, set where the value is below 0 (-0 is not). For the means value i of each
// 8192 is added to lane i mod 16, in float for 512 values and then in double.
// REQUIRES: block a multiple of 8, or one block for all.
struct LevelBlocks {
  size_t block;
  LevelRule rule;

  constexpr size_t header() const noexcept {
    return rule == LevelRule::kMagnitude ? sizeof(float) : 2 * sizeof(float);
  }
  constexpr size_t size(size_t count) const noexcept {
    return count / block * (header() + code_bytes(block, 1)) +
           (count % block == 0 ? 0 : header() + code_bytes(count % block, 1));
  }
};

// Writes the bits of one block whose levels are known. A non-empty `rest` receives x minus the
// level that the bit of x stands for; it is as long as `values` and may be `values`.
// REQUIRES: bits.size() == code_bytes(values.size(), 1).
void pack_levels(std::span<const float> values, Levels levels, std::span<std::byte> bits,
                 std::span<float> rest = {}) noexcept;

// out[i] += high where bit i is clear, low where it is set.
// REQUIRES: bits.size() == code_bytes(out.size(), 1).
void add_level_bits(std::span<const std::byte> bits, Levels levels, std::span<float> out) noexcept;

// Measures and packs every block. REQUIRES: finite values; bytes.size() ==
// blocks.size(values.size()).
void encode_levels(std::span<const float> values, LevelBlocks blocks, std::span<std::byte> bytes,
                   std::span<float> rest = {}) noexcept;

// out[i] += weight x level. Returns false, `out` then being unspecified, unless all levels are
// finite, every high is at least +0 and every low that is on the wire at most 0. Unused bits are
// not looked at. REQUIRES: bytes.size() == blocks.size(out.size()).
bool add_levels(std::span<const std::byte> bytes, LevelBlocks blocks, float weight,
                std::span<float> out) noexcept;

}  // namespace thinwire::kernel
