// Tests of stripes: every value is in one region, and regions are even for any part of a stream.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/layout/stripes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace thinwire {
namespace {

constexpr size_t kCounts[] = {0, 1, 63, 64, 65, 1023, 1024, 1025, 5000, 8192, 100003};

TEST(Stripes, EveryValueHasOnePlaceAndThePlaceLeadsBack) {
  for (const size_t count : kCounts)
    for (const size_t ranks : {1, 2, 3, 5, 8, 64}) {
      const Stripes stripes(count, ranks);
      std::vector<uint32_t> next(stripes.regions());
      for (uint32_t p = 0; p < count; ++p) {
        const auto [region, offset] = stripes.place(p);
        ASSERT_LT(region, stripes.regions());
        ASSERT_EQ(offset, next[region]++) << "values keep their order, without gaps";
        ASSERT_EQ(stripes.position(region, offset), p);
      }
      for (size_t region = 0; region < stripes.regions(); ++region)
        ASSERT_EQ(stripes.size(region), next[region]) << count << " among " << ranks;
    }
}

TEST(Stripes, RangesAreWhatARegionHoldsInOrder) {
  for (const size_t count : kCounts)
    for (const size_t ranks : {1, 2, 7}) {
      const Stripes stripes(count, ranks);
      for (uint32_t region = 0; region < stripes.regions(); ++region) {
        uint32_t offset = 0;
        for (const Range& range : stripes.ranges(region))
          for (size_t i = 0; i < range.count; ++i)
            ASSERT_EQ(stripes.position(region, offset++), range.begin + i);
        ASSERT_EQ(offset, stripes.size(region));
      }
    }
}

TEST(Stripes, SmallStreamsHaveFewRegionsAndLargeOnesOnePerRank) {
  EXPECT_EQ(Stripes(0, 8).regions(), 1u);
  EXPECT_EQ(Stripes(1000, 8).regions(), 1u);
  EXPECT_EQ(Stripes(1024, 8).regions(), 2u);
  EXPECT_EQ(Stripes(1000000, 8).regions(), 8u);
  EXPECT_EQ(Stripes(1000000, 64).regions(), 64u);
}

// A layer that keeps everything, a channel that does, every period of a power of two.
TEST(Stripes, WhateverIsKeptIsSpreadOverAllRegions) {
  constexpr size_t kCount = size_t{1} << 20;
  for (const size_t ranks : {2, 4, 7, 8, 16}) {
    const Stripes stripes(kCount, ranks);
    const auto most = [&](auto&& is_kept) {
      std::vector<size_t> kept(ranks);
      size_t all = 0;
      for (uint32_t p = 0; p < kCount; ++p)
        if (is_kept(p)) ++kept[stripes.place(p).region], ++all;
      return static_cast<double>(*std::max_element(kept.begin(), kept.end())) *
             static_cast<double>(ranks) / static_cast<double>(all);
    };
    EXPECT_LT(most([](uint32_t p) { return p >= 300000 && p < 350000; }), 1.1) << "a layer";
    for (uint32_t period = 256; period <= 4096; period *= 2)
      EXPECT_LT(most([&](uint32_t p) { return p % period < 8; }), 1.5) << "every " << period;
  }
}

}  // namespace
}  // namespace thinwire
