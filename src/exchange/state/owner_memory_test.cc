// Tests of owners' residuals: sums, rollback, saved pieces, and another number of ranks.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/owner_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "exchange/layout/range.h"
#include "exchange/layout/stripes.h"
#include "thinwire/store.h"

namespace thinwire {
namespace {

constexpr size_t kCount = 1000;  // of the stream
constexpr size_t kBlock = 24;
constexpr size_t kRanks = 3;

// A step that leaves 1000 + position, plus `more`.
void leave(OwnerMemory& memory, Range shard, float more = 0) {
  const std::vector<float> mean(shard.count, 0.5f);
  const auto sum = memory.add(shard.begin, mean).values;
  for (size_t i = 0; i < sum.size(); ++i)
    sum[i] = 1000.0f + static_cast<float>(shard.begin + i) + more;
  memory.commit();
}

// What the memory has at each position of its shard.
std::vector<float> kept(OwnerMemory& memory, Range shard) {
  const std::vector<float> zeros(shard.count);
  const auto sum = memory.add(shard.begin, zeros).values;
  return {sum.begin(), sum.end()};
}

std::vector<StateArrays> saved_by(size_t ranks) {
  std::vector<StateArrays> all;
  for (size_t r = 0; r < ranks; ++r) {
    const Range shard = shard_range(kCount, kBlock, ranks, (r + 1) % ranks);
    Store store;
    leave(store.open<OwnerMemory>(
              "w/owner", [&] { return std::make_unique<OwnerMemory>(kCount, shard, ranks); }),
          shard);
    all.push_back(store.save());
  }
  return all;
}

TEST(OwnerMemory, AddsWhatWasLeftToTheMean) {
  const Range shard{.begin = 48, .count = 30};
  OwnerMemory memory(kCount, shard, kRanks);
  leave(memory, shard);
  const std::vector<float> mean = {1, 2, 3};
  const OwnerMemory::Sum sum = memory.add(50, mean);
  EXPECT_THAT(sum.values, ::testing::ElementsAre(1051, 1053, 1055));
  EXPECT_EQ(sum.moments.abs_max, 1055);
  EXPECT_TRUE(sum.moments.finite);
}

TEST(OwnerMemory, AStepRolledBackNeverHappened) {
  const Range shard{.begin = 0, .count = 30};
  OwnerMemory memory(kCount, shard, kRanks);
  leave(memory, shard);
  const auto before = kept(memory, shard);
  const std::vector<float> nan(shard.count, NAN);
  EXPECT_FALSE(memory.add(0, nan).moments.finite);
  memory.rollback();
  EXPECT_EQ(kept(memory, shard), before);
}

TEST(OwnerMemory, EveryRankFindsItsNewShardAtAnotherNumberOfRanks) {
  for (const size_t from : {1, 2, 3, 5})
    for (const size_t to : {1, 2, 3, 4, 7}) {
      const auto saved = saved_by(from);
      for (size_t r = 0; r < to; ++r) {
        const Range shard = shard_range(kCount, kBlock, to, (r + 1) % to);
        Store store;
        ASSERT_TRUE(store.load(saved, static_cast<int>(r), static_cast<int>(to)));
        auto& memory = store.open<OwnerMemory>(
            "w/owner", [&] { return std::make_unique<OwnerMemory>(kCount, shard, to); });
        const auto values = kept(memory, shard);
        for (size_t i = 0; i < shard.count; ++i)
          ASSERT_EQ(values[i], 1000.0f + static_cast<float>(shard.begin + i))
              << from << " to " << to << ", rank " << r;
      }
    }
}

constexpr size_t kLong = 5000;  // values: several stripes for each of five ranks

std::vector<Range> stripes_of(size_t ranks, size_t rank) {
  return Stripes(kLong, ranks).ranges(rank);
}

// 1000 + position at each value of a shard of many ranges.
void fill(OwnerMemory& memory, const std::vector<Range>& shard) {
  size_t count = 0;
  for (const Range& range : shard) count += range.count;
  auto sum = memory.add_whole(std::vector<float>(count)).values;
  for (const Range& range : shard)
    for (size_t i = 0; i < range.count; ++i) {
      sum.front() = 1000.0f + static_cast<float>(range.begin + i);
      sum = sum.subspan(1);
    }
  memory.commit();
}

// From stripes, or shards in one piece, to stripes, at another number of ranks.
TEST(OwnerMemory, ShardsOfManyRangesAreFoundByAnyOtherShards) {
  const auto shards_of = [](bool striped, size_t ranks, size_t rank) {
    return striped && rank >= Stripes(kLong, ranks).regions() ? std::vector<Range>{}
           : striped                                          ? stripes_of(ranks, rank)
                     : std::vector<Range>{shard_range(kLong, kBlock, ranks, rank)};
  };
  for (const bool from_stripes : {true, false})
    for (const size_t from : {1, 2, 5})
      for (const size_t to : {1, 2, 3}) {
        if (from == to && !from_stripes) continue;  // each takes back what it saved
        std::vector<StateArrays> saved;
        for (size_t r = 0; r < from; ++r) {
          const auto shard = shards_of(from_stripes, from, r);
          Store store;
          fill(store.open<OwnerMemory>(
                   "w/owner", [&] { return std::make_unique<OwnerMemory>(kLong, shard, from); }),
               shard);
          saved.push_back(store.save());
        }
        for (size_t r = 0; r < to; ++r) {
          const auto shard = shards_of(true, to, r);
          Store store;
          ASSERT_TRUE(store.load(saved, static_cast<int>(r), static_cast<int>(to)));
          auto& memory = store.open<OwnerMemory>(
              "w/owner", [&] { return std::make_unique<OwnerMemory>(kLong, shard, to); });
          for (const Range& range : shard)
            for (size_t i = 0; i < range.count; ++i) {
              const float zero[] = {0};
              ASSERT_EQ(memory.add(range.begin + i, zero).values[0],
                        1000.0f + static_cast<float>(range.begin + i))
                  << from << " to " << to << ", rank " << r;
            }
        }
      }
}

TEST(OwnerMemory, MovingKeepsWhatLiesInBothShards) {
  OwnerMemory memory(kCount, Range{.begin = 100, .count = 100}, kRanks);
  leave(memory, {.begin = 100, .count = 100});
  memory.move_to(Range{.begin = 150, .count = 100});
  auto values = kept(memory, {.begin = 150, .count = 100});
  EXPECT_EQ(values.front(), 1150);
  EXPECT_EQ(values[49], 1199);
  EXPECT_EQ(values[50], 0);
  memory.move_to(Range{.begin = 500, .count = 10});
  values = kept(memory, {.begin = 500, .count = 10});
  EXPECT_EQ(values, std::vector<float>(10));
}

// What a shard leaves behind goes into the gradient until a step counts, and is saved until then.
TEST(OwnerMemory, WhatStraysGoesBackIntoTheGradientOnce) {
  const auto made = [] {
    OwnerMemory memory(kCount, Range{.begin = 100, .count = 100}, kRanks);
    leave(memory, {.begin = 100, .count = 100});
    memory.move_to({{.begin = 110, .count = 10}, {.begin = 190, .count = 20}});
    return memory;
  };
  const auto strays = [](OwnerMemory& memory) {
    std::vector<float> gradient(kCount, 1.0f);
    memory.release_strays(gradient);
    return gradient;
  };
  std::vector<float> expected(kCount, 1.0f);
  for (size_t i = 100; i < 190; ++i)
    if (i < 110 || i >= 120) expected[i] += 3 * (1000.0f + static_cast<float>(i));
  OwnerMemory memory = made();
  EXPECT_TRUE(memory.has_strays());
  EXPECT_EQ(strays(memory), expected);
  memory.rollback();
  EXPECT_EQ(strays(memory), expected);

  OwnerMemory resumed(kCount, Range{.begin = 700, .count = 5}, kRanks);
  ASSERT_TRUE(resumed.load(memory.save()));
  std::vector<float> all = expected;  // its own shard is another: everything strays
  for (size_t i = 100; i < 200; ++i) all[i] = 1 + 3 * (1000.0f + static_cast<float>(i));
  EXPECT_EQ(strays(resumed), all);

  const Range whole{.begin = 0, .count = kCount};
  OwnerMemory of_one(kCount, whole, 1);
  ASSERT_TRUE(of_one.load(memory.save()));
  EXPECT_FALSE(of_one.has_strays());
  const auto values = kept(of_one, whole);
  for (size_t i = 0; i < kCount; ++i)
    EXPECT_EQ(values[i], i >= 100 && i < 200 ? 1000.0f + static_cast<float>(i) : 0.0f) << i;

  const std::vector<float> zeros(30);
  memory.add_whole(zeros);
  memory.commit();
  EXPECT_FALSE(memory.has_strays());
  EXPECT_EQ(strays(memory), std::vector<float>(kCount, 1.0f));
}

TEST(OwnerMemory, StatesThatDoNotFitAreRefusedAndChangeNothing) {
  const Range shard{.begin = 48, .count = 30};
  OwnerMemory memory(kCount, shard, kRanks);
  leave(memory, shard);
  const StateArrays good = memory.save();
  const auto before = kept(memory, shard);
  const auto refused = [&](std::vector<int64_t> pieces, size_t values) {
    const std::vector<float> floats(values, 7.0f);
    const Status status =
        memory.load({make_state("pieces", std::span<const int64_t>(pieces), OnResize::kJoin),
                     make_state("residual", std::span<const float>(floats), OnResize::kJoin)});
    EXPECT_EQ(status.code(), ErrorCode::kMismatch);
    EXPECT_EQ(kept(memory, shard), before);
  };
  refused({48, 30, 999}, 30);          // another stream
  refused({48, 30}, 30);               // cut short
  refused({48, 30, 1000}, 29);         // too few values
  refused({48, 30, 1000}, 31);         // too many
  refused({980, 30, 1000}, 30);        // beyond the end
  refused({-8, 30, 1000}, 30);         // before the beginning
  refused({48, -1, 1000}, 30);         // an impossible count
  refused({48, INT64_MAX, 1000}, 30);  // an overflow
  EXPECT_EQ(memory.load({good[0]}).code(), ErrorCode::kMismatch);
  EXPECT_EQ(memory.load({good[1]}).code(), ErrorCode::kMismatch);
  EXPECT_TRUE(memory.load(good));
  EXPECT_EQ(kept(memory, shard), before);
}

}  // namespace
}  // namespace thinwire
