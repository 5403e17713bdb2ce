// Counter-based random numbers: pure functions of their key, so the order of calls does not
// matter.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace thinwire {

// What numbers are for: two purposes never share a sequence.
enum class RandomUse : uint32_t {
  kShuffle = 1,
  kAugment = 2,
  kDropout = 3,
  kInit = 4,
  kCodec = 5,
  kTest = 6,
  kWrongLabels = 7,
};

// Names a sequence of numbers: Philox4x32-10 [Salmon et al., SC 2011] keyed by seed and use, its
// counter made of step, stream and position.
struct RandomKey {
  uint64_t seed = 0;
  RandomUse use = RandomUse::kTest;
  uint64_t step = 0;    // the low 48 bits count
  uint32_t stream = 0;  // the low 16 bits count
};

// What Philox is given for a key; words 0 and 1 of the counter are the block's number.
struct PhiloxInput {
  std::array<uint32_t, 2> key;
  std::array<uint32_t, 4> counter;
};
PhiloxInput philox_input(const RandomKey& key, uint64_t block = 0) noexcept;

// The four 32-bit words of block `block`; the low 64 bits of a 128-bit counter.
std::array<uint32_t, 4> random_block(const RandomKey& key, uint64_t block) noexcept;

// Word `position` of the sequence.
uint32_t random_word(const RandomKey& key, uint64_t position) noexcept;

// Uniform in [0, 1): 24 bits of word `position`.
float random_unit(const RandomKey& key, uint64_t position) noexcept;

// Standard normal, by Box-Muller from words 2 position and 2 position + 1, in double.
float random_normal(const RandomKey& key, uint64_t position) noexcept;

// Uniform in [0, bound), without bias worth naming: 64 bits scaled. REQUIRES: bound > 0.
uint64_t random_below(const RandomKey& key, uint64_t position, uint64_t bound) noexcept;

// 0 .. count-1 in random order (Fisher-Yates).
std::vector<uint64_t> random_permutation(const RandomKey& key, uint64_t count);

}  // namespace thinwire
