// Exact top-k per block. Neighbouring blocks are alike, so 0.85 of the mean k-th magnitude of some
// blocks predicts a bound for the next ones: one vectorised pass collects what exceeds it, two to
// three times k values. The largest are chosen among these. A block with too few is searched again,
// in cache, at half of the bound and then at zero. The prediction does not change the result.
// SPDX-License-Identifier: Apache-2.0
#include "codec/block_top_selector.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <functional>

#include "codec/sparse_codec.h"
#include "kernel/select.h"

namespace thinwire {
namespace {

constexpr size_t kGroup = 4096;  // values, about: whole blocks that share a guess
constexpr double kGuess = 0.85;

uint32_t magnitude_bits(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffff; }

// The place of the first largest magnitude. REQUIRES: not empty.
size_t find_largest(std::span<const float> values) {
  size_t best = 0;
  for (size_t i = 1; i < values.size(); ++i)
    if (magnitude_bits(values[i]) > magnitude_bits(values[best])) best = i;
  return best;
}

size_t group_size(size_t count, size_t block) {
  return std::min(std::max(kGroup / block, size_t{1}) * block, count);
}

}  // namespace

BlockTopSelector::BlockTopSelector(size_t count, size_t block, double density)
    : count_(count),
      block_(std::max<size_t>(std::min(block, count), 1)),
      density_(density),
      group_(group_size(count, block_)),
      again_(std::min(block_, count)),
      magnitudes_(group_.values.size()),
      positions_(count / block_ * target(block_) + target(count % block_)) {}

size_t BlockTopSelector::target(size_t count) const noexcept {
  return kept_target(density_, count);
}

void BlockTopSelector::Candidates::find(std::span<const float> from, size_t begin, size_t end,
                                        float least) {
  count = kernel::select_above(from.first(end), begin, just_below(least), positions, values).kept;
}

// Appends the `most` largest, and returns the least of them if there are so many, else 0.
float BlockTopSelector::take(std::span<const uint32_t> positions, std::span<const float> values,
                             size_t most) {
  if (most == 1 && !values.empty()) {  // small blocks, of which there are many
    const size_t best = find_largest(values);
    positions_[kept_++] = positions[best];
    return std::abs(values[best]);
  }
  uint32_t least = 0;
  size_t ties = 0;
  if (values.size() >= most && most > 0) {
    const auto begin = magnitudes_.begin();
    const auto kth = begin + static_cast<std::ptrdiff_t>(most - 1);
    const auto end = std::transform(values.begin(), values.end(), begin, magnitude_bits);
    std::nth_element(begin, kth, end, std::greater<>());
    least = *kth;
    const auto above = std::count_if(begin, kth, [&](uint32_t bits) { return bits > least; });
    ties = most - static_cast<size_t>(above);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = magnitude_bits(values[i]);
    const bool tie = bits == least && ties > 0;
    if (bits > least || tie) positions_[kept_++] = positions[i];
    ties -= tie;
  }
  return std::bit_cast<float>(least);
}

std::span<const uint32_t> BlockTopSelector::select(std::span<const float> values) {
  assert(values.size() == count_);
  kept_ = 0;
  float guess = 0;
  for (size_t group = 0; group < count_; group += group_.values.size()) {
    const size_t group_end = std::min(group + group_.values.size(), count_);
    group_.find(values, group, group_end, guess);
    double least_sum = 0;
    size_t used = 0;
    for (size_t begin = group; begin < group_end; begin += block_) {
      const size_t end = std::min(begin + block_, group_end);
      const size_t most = target(end - begin);
      const size_t first = used;
      while (used < group_.count && group_.positions[used] < end) ++used;
      if (used - first >= most || guess == 0) {
        least_sum += take(std::span(group_.positions).subspan(first, used - first),
                          std::span(group_.values).subspan(first, used - first), most);
        continue;
      }
      again_.find(values, begin, end, guess / 2);
      if (again_.count < most) again_.find(values, begin, end, 0);
      least_sum += take(std::span(again_.positions).first(again_.count),
                        std::span(again_.values).first(again_.count), most);
    }
    const size_t blocks = (group_end - group + block_ - 1) / block_;
    guess = to_threshold(kGuess * least_sum / static_cast<double>(blocks));
  }
  return std::span(positions_).first(kept_);
}

}  // namespace thinwire
