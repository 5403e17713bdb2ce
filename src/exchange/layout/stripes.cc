// Stripes: the sizes and ranges of regions.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/layout/stripes.h"

#include <algorithm>

namespace thinwire {

Stripes::Stripes(size_t count, size_t ranks)
    : count_(count),
      regions_(static_cast<uint32_t>(std::clamp<size_t>(count / kLeastRegion, 1, ranks))) {}

size_t Stripes::size(size_t region) const noexcept {
  const size_t stripes = (count_ + kStripe - 1) / kStripe;
  const auto groups = static_cast<uint32_t>(stripes / regions_);  // full ones
  size_t size = size_t{groups} * kStripe;
  if (stripe(static_cast<uint32_t>(region), groups) < stripes) size += kStripe;
  const bool has_last = count_ > 0 && place(static_cast<uint32_t>(count_ - 1)).region == region;
  return has_last ? size - (stripes * kStripe - count_) : size;
}

std::optional<uint32_t> Stripes::region_of(size_t rank, size_t ranks, size_t first) const noexcept {
  const size_t region = (rank + ranks - first % ranks) % ranks;
  if (region >= regions_ || size(region) == 0) return std::nullopt;
  return static_cast<uint32_t>(region);
}

std::vector<Range> Stripes::ranges(size_t region) const {
  std::vector<Range> all;
  const size_t size = this->size(region);
  for (size_t offset = 0; offset < size; offset += kStripe) {
    const size_t begin = position(static_cast<uint32_t>(region), static_cast<uint32_t>(offset));
    const size_t count = std::min<size_t>(kStripe, size - offset);
    if (!all.empty() && all.back().begin + all.back().count == begin)
      all.back().count += count;
    else
      all.push_back({.begin = begin, .count = count});
  }
  return all;
}

}  // namespace thinwire
