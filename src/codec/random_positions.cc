// Draws positions one by one and marks them in a bitmap; a position that is already marked is
// drawn again. Reading the bitmap gives them in order, and clears it. A second bitmap says at
// which of its words to look, so that the time is proportional to the number drawn. If k is more
// than half of the positions, the omitted positions are drawn.
// SPDX-License-Identifier: Apache-2.0
#include "codec/random_positions.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>
#include <utility>

#include "core/random.h"

namespace thinwire {
namespace {

constexpr size_t kWord = 64;

}  // namespace

// A word w of 32 bits says position floor(w x count / 2^32); those whose product lies in the first
// 2^32 mod count of its 2^32 steps are dropped, so that all positions have equally many [Lemire,
// TOMACS 2019].
void RandomPositions::mark(uint64_t key, uint32_t count, size_t marks) {
  const RandomKey words{.seed = key, .use = RandomUse::kCodec};
  const uint32_t dropped = (0u - count) % count;
  for (uint64_t block = 0; marks > 0; ++block) {
    for (const uint32_t word : random_block(words, block)) {
      const uint64_t product = uint64_t{word} * count;
      const auto position = static_cast<size_t>(product >> 32);
      uint64_t& group = marked_[position / kWord];
      const uint64_t bit = uint64_t{1} << position % kWord;
      const bool taken =
          marks > 0 && static_cast<uint32_t>(product) >= dropped && (group & bit) == 0;
      group |= taken ? bit : 0;
      touched_[position / kWord / kWord] |= uint64_t{taken} << position / kWord % kWord;
      marks -= taken;
    }
  }
}

void RandomPositions::take_marked() {
  uint32_t* to = positions_.data();
  for (size_t i = 0; i < touched_.size(); ++i) {
    for (uint64_t touched = std::exchange(touched_[i], 0); touched != 0; touched &= touched - 1) {
      const size_t at = i * kWord + static_cast<size_t>(std::countr_zero(touched));
      for (uint64_t group = std::exchange(marked_[at], 0); group != 0; group &= group - 1)
        *to++ = static_cast<uint32_t>(at * kWord + static_cast<size_t>(std::countr_zero(group)));
    }
  }
}

void RandomPositions::take_unmarked(size_t count) {
  uint32_t* to = positions_.data();
  for (size_t i = 0; i < marked_.size(); ++i) {
    uint64_t group = ~std::exchange(marked_[i], 0);
    if (count - i * kWord < kWord) group &= (uint64_t{1} << (count - i * kWord)) - 1;
    for (; group != 0; group &= group - 1)
      *to++ = static_cast<uint32_t>(i * kWord + static_cast<size_t>(std::countr_zero(group)));
  }
  std::fill(touched_.begin(), touched_.end(), 0);
}

std::span<const uint32_t> RandomPositions::draw(uint64_t key, size_t count, size_t kept) {
  assert(kept <= count && count <= std::numeric_limits<uint32_t>::max());
  if (kept == 0) return {};
  if (key_ != key || count_ != count || kept_ != kept) {
    key_ = key;
    count_ = count;
    kept_ = kept;
    marked_.resize((count + kWord - 1) / kWord);
    touched_.resize((marked_.size() + kWord - 1) / kWord);
    positions_.resize(kept);
    const bool inverted = kept > count / 2;
    mark(key, static_cast<uint32_t>(count), inverted ? count - kept : kept);
    inverted ? take_unmarked(count) : take_marked();
  }
  return positions_;
}

}  // namespace thinwire
