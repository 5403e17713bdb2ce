// Stripes: divide a stream's positions among the ranks that add them, in method sparse-reduce.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "exchange/layout/range.h"

namespace thinwire {

// Of the stripes of kStripe values that a stream is cut into (the last may be short), every group
// of m in a row has one for each of the m regions, in an order that turns from group to group. So a
// region has its share of whatever part of a stream sends most, without having seen it: what
// layers, rows or channels keep is spread over all owners, borders need not follow, and what owners
// remember stays where it is. Within a region values keep their order, and lie without gaps.
//
// m = count / kLeastRegion, but at least 1 and at most n: a region that keeps a handful of values
// costs more in headers than in values.
class Stripes {
 public:
  static constexpr uint32_t kStripe = 64;
  static constexpr size_t kLeastRegion = 512;

  // REQUIRES: count < 2^32, ranks >= 1.
  Stripes(size_t count, size_t ranks);

  size_t regions() const noexcept { return regions_; }
  size_t size(size_t region) const noexcept;  // in values

  // The region that a rank owns, if any: region j belongs to rank (j + first) mod n, so that small
  // streams, which have fewer regions than there are ranks, are spread over all of them.
  std::optional<uint32_t> region_of(size_t rank, size_t ranks, size_t first) const noexcept;

  // Where a value of the stream lies, and back.
  struct Place {
    uint32_t region = 0;
    uint32_t offset = 0;  // in it
  };
  Place place(uint32_t position) const noexcept {
    const uint32_t stripe = position / kStripe;
    const uint32_t group = stripe / regions_;
    const uint32_t region = (stripe - group * regions_ + turn(group)) % regions_;
    return {region, group * kStripe + position % kStripe};
  }
  uint32_t position(uint32_t region, uint32_t offset) const noexcept {
    return stripe(region, offset / kStripe) * kStripe + offset % kStripe;
  }

  // What a region holds of the stream, in order.
  std::vector<Range> ranges(size_t region) const;

 private:
  // The one that `region` has in `group`.
  uint32_t stripe(uint32_t region, uint32_t group) const noexcept {
    return group * regions_ + (region + regions_ - turn(group)) % regions_;
  }

  // Scattered, so that no period of the stream meets one of the turns.
  uint32_t turn(uint32_t group) const noexcept {
    return static_cast<uint32_t>(group * uint64_t{0x9E3779B97F4A7C15} >> 32) % regions_;
  }

  size_t count_;
  uint32_t regions_;
};

}  // namespace thinwire
