// A sample gives a lower bound of the k-th magnitude; one pass collects all values above it, and
// the k largest are chosen among these. If the sample misleads (too few or too many values
// collected), the k-th magnitude is found by passes over the whole vector; the result is the same.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/top_selector.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "kernel/kth_magnitude.h"
#include "kernel/select.h"
#include "kernel/value_sample.h"

namespace thinwire::kernel {
namespace {

// At a density of 0.01 this collects 1.25 k, at 0.001 2 k, and costs 0.3 ms.
constexpr size_t kSample = 32768;

// Compared instead of floats: the same whatever the machine does with denormals.
uint32_t magnitude_bits(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffff; }

// Four standard deviations of a count of about `rank`, and room for the smallest.
double margin(double rank) { return 4 * std::sqrt(rank) + 8; }

}  // namespace

TopSelector::TopSelector(size_t count, size_t kept) { aim(count, kept); }

void TopSelector::aim(size_t count, size_t kept) {
  count_ = count;
  kept_ = kept;
  sample_rank_ = 0;
  room_ = kept;
  if (count >= 4 * kSample && kept > 0 && kept <= count / 4) {
    const double per_sample = static_cast<double>(count) / kSample;
    const double rank = static_cast<double>(kept) / per_sample;
    const double low_rank = rank + margin(rank);
    sample_rank_ = static_cast<size_t>(low_rank);
    sample_.resize(kSample);
    room_ = static_cast<size_t>(per_sample * (low_rank + margin(low_rank)));
    if (candidates_.size() < room_) candidates_.resize(room_);
  }
  if (positions_.size() < room_) positions_.resize(room_);
}

size_t TopSelector::held_bytes() const noexcept {
  return std::span(sample_).size_bytes() + std::span(positions_).size_bytes() +
         std::span(candidates_).size_bytes();
}

std::span<const uint32_t> TopSelector::select(std::span<const float> values) {
  assert(values.size() == count_);
  if (kept_ == 0) return {};
  if (sample_rank_ > 0) {
    const float bound = sampled_bound(values);
    const auto positions = std::span(positions_).first(room_);
    const auto candidates = std::span(candidates_).first(room_);
    const auto found = magnitude_bits(bound) > 0
                           ? select_at_least(values, 0, bound, positions, candidates)
                           : select_above(values, 0, 0, positions, candidates);
    const bool all = found.next == values.size();
    if (all && (found.kept >= kept_ || magnitude_bits(bound) == 0)) return pick_among(found.kept);
  }
  return scan(values);
}

float TopSelector::sampled_bound(std::span<const float> values) {
  sample_values(values, 0, sample_);
  return kth_magnitude(sample_, sample_rank_).magnitude;
}

std::span<const uint32_t> TopSelector::pick_among(size_t candidates) {
  const auto positions = std::span(positions_).first(candidates);
  if (candidates <= kept_) return positions;
  const auto values = std::span(candidates_).first(candidates);
  const auto [magnitude, above] = kth_magnitude(values, kept_);
  const uint32_t least = magnitude_bits(magnitude);
  size_t ties = kept_ - above;
  size_t kept = 0;
  for (size_t i = 0; i < candidates; ++i) {
    const uint32_t bits = magnitude_bits(values[i]);
    const bool tie = bits == least && ties > 0;
    positions[kept] = positions[i];
    kept += bits > least || tie;
    ties -= tie;
  }
  assert(kept == kept_);
  return positions.first(kept);
}

std::span<const uint32_t> TopSelector::scan(std::span<const float> values) {
  const auto [magnitude, above] = kth_magnitude(values, kept_);
  const uint32_t least = magnitude_bits(magnitude);
  const auto positions = std::span(positions_).first(kept_);
  size_t ties = least > 0 ? kept_ - above : 0;
  size_t kept = 0;
  size_t next = 0;
  while (ties > 0) {  // up to where the last tie that counts was found
    const auto found = select_at_least(values, next, magnitude, positions.subspan(kept), {});
    next = found.next;
    for (const uint32_t position : positions.subspan(kept, found.kept)) {
      const bool tie = magnitude_bits(values[position]) == least;
      if (tie && ties == 0) continue;
      positions[kept++] = position;
      ties -= tie;
    }
  }
  kept += select_above(values, next, magnitude, positions.subspan(kept), {}).kept;
  return positions.first(kept);
}

}  // namespace thinwire::kernel
