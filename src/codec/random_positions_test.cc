// Random positions: the documented set, uniform, without repeats, and the same from any state.
// SPDX-License-Identifier: Apache-2.0
#include "codec/random_positions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/random.h"

namespace thinwire {
namespace {

// The document's words, one position after another.
std::set<uint32_t> oracle(uint64_t key, size_t count, size_t kept) {
  const bool inverted = kept > count / 2;
  std::set<uint32_t> drawn;
  for (uint64_t i = 0; drawn.size() < (inverted ? count - kept : kept); ++i) {
    const uint64_t product =
        uint64_t{random_word({.seed = key, .use = RandomUse::kCodec}, i)} * count;
    if ((product & 0xffffffff) < (uint64_t{1} << 32) % count) continue;
    drawn.insert(static_cast<uint32_t>(product >> 32));
  }
  if (!inverted) return drawn;
  std::set<uint32_t> rest;
  for (uint32_t i = 0; i < count; ++i)
    if (!drawn.contains(i)) rest.insert(i);
  return rest;
}

TEST(RandomPositions, AreTheDocumentedSet) {
  RandomPositions positions;  // one for all: nothing of the draws before may show
  for (const size_t count : {1, 2, 3, 63, 64, 65, 128, 1000, 4096, 70'000})
    for (const size_t kept :
         {size_t{0}, size_t{1}, count / 100, count / 3, count / 2, count / 2 + 1, count - 1, count})
      for (const uint64_t key : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
        SCOPED_TRACE(testing::Message() << kept << " of " << count << ", key " << key);
        const auto want = oracle(key, count, kept);
        for (int round = 0; round < 2; ++round) {
          const auto got = positions.draw(key, count, kept);
          ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end()));
        }
      }
}

// Every position equally often: chi-squared with 99 degrees of freedom, 99 +- 5 deviations of 14.
TEST(RandomPositions, AreUniform) {
  RandomPositions positions;
  for (const size_t kept : {10, 70}) {
    std::vector<double> seen(100);
    constexpr double kDraws = 20'000;
    for (uint64_t key = 0; key < kDraws; ++key)
      for (const uint32_t position : positions.draw(key, seen.size(), kept)) ++seen[position];
    const double share = static_cast<double>(kept) / 100;
    double chi = 0;
    for (const double times : seen)
      chi += std::pow(times - kDraws * share, 2) / (kDraws * share * (1 - share));
    EXPECT_NEAR(chi, 100, 70);
  }
}

TEST(RandomPositions, ReachTheEndsOfLongVectors) {
  RandomPositions positions;
  constexpr size_t kCount = (size_t{1} << 28) + 1;
  const auto got = positions.draw(5, kCount, 3000);
  EXPECT_EQ(got.size(), 3000u);
  EXPECT_TRUE(std::adjacent_find(got.begin(), got.end(), std::greater_equal<>()) == got.end());
  EXPECT_LT(got.front(), kCount / 300);
  EXPECT_GT(got.back(), kCount - kCount / 300);
  EXPECT_LT(got.back(), kCount);
}

}  // namespace
}  // namespace thinwire
