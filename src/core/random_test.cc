// Random numbers: the published Philox vector, independence of order, and distributions.
// SPDX-License-Identifier: Apache-2.0
#include "core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace thinwire {
namespace {

TEST(Random, IsPhilox4x32With10Rounds) {
  // Known answer of Random123's kat_vectors: zero counter, zero key; RandomUse is 0 here.
  const auto block = random_block({.seed = 0, .use = RandomUse{0}}, 0);
  EXPECT_EQ(block, (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Random, EveryPartOfTheKeyMatters) {
  const RandomKey key{.seed = 5, .use = RandomUse::kTest, .step = 6, .stream = 7};
  const auto base = random_block(key, 3);
  auto other = key;
  other.seed = 8;
  EXPECT_NE(random_block(other, 3), base);
  other = key;
  other.use = RandomUse::kInit;
  EXPECT_NE(random_block(other, 3), base);
  other = key;
  other.step = 9;
  EXPECT_NE(random_block(other, 3), base);
  other = key;
  other.stream = 9;
  EXPECT_NE(random_block(other, 3), base);
  EXPECT_NE(random_block(key, 4), base);
}

TEST(Random, UnitAndNormalHaveTheirMoments) {
  const RandomKey key{.seed = 1};
  constexpr int kCount = 100000;
  double unit = 0, normal = 0, square = 0;
  for (int i = 0; i < kCount; ++i) {
    const float u = random_unit(key, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    unit += u;
    const double z = random_normal(key, i);
    normal += z;
    square += z * z;
  }
  EXPECT_NEAR(unit / kCount, 0.5, 0.005);
  EXPECT_NEAR(normal / kCount, 0, 0.02);
  EXPECT_NEAR(square / kCount, 1, 0.03);
}

TEST(Random, PermutationHoldsEachOnceAndMoves) {
  const auto order = random_permutation({.seed = 3, .use = RandomUse::kShuffle, .step = 2}, 1000);
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  size_t fixed = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(sorted[i], i);
    fixed += order[i] == i;
  }
  EXPECT_LT(fixed, 10u);
  EXPECT_TRUE(random_permutation({}, 0).empty());
}

}  // namespace
}  // namespace thinwire
