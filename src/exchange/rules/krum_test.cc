// Tests of krum by itself: scores, ties, distances, and the ranks that it needs.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "exchange/rules/vector_rule.h"

namespace thinwire {
namespace {

using Weights = std::vector<float>;

// Of ranks that lie at these places on a line.
Weights weights(const char* text, const std::vector<double>& places) {
  const auto rule = make_combine(text).value().rule;
  std::vector<double> distances;
  for (size_t a = 0; a < places.size(); ++a)
    for (size_t b = a + 1; b < places.size(); ++b)
      distances.push_back((places[a] - places[b]) * (places[a] - places[b]));
  Weights result(places.size(), -1.0f);
  rule->over_vectors()->weigh(distances, {.ranks = result.size()}, result);
  return result;
}

// With n - f - 2 neighbours, as in the paper; with one more, rank 1 would be first in the first
// line.
TEST(Krum, TakesTheVectorWithTheNearestNeighbours) {
  EXPECT_EQ(weights("krum:f=1", {0, 1, 2, 100, 1.5}), (Weights{0, 0, 0, 0, 1}));
  EXPECT_EQ(weights("krum:f=1,m=2", {0, 1, 2, 100, 1.6}), (Weights{0, 0, 0.5f, 0, 0.5f}));
  EXPECT_EQ(weights("krum:f=1,m=4", {0, 1, 2, 100, 3}), (Weights{0.25f, 0.25f, 0.25f, 0, 0.25f}));
  EXPECT_EQ(weights("krum:f=0", {0, 0.5, 3, 3.6}), (Weights{0, 1, 0, 0}));
}

TEST(Krum, TakesTheLowerRankOfEqualScores) {
  EXPECT_EQ(weights("krum:f=0", {1, 1, 1}), (Weights{1, 0, 0}));
  EXPECT_EQ(weights("krum:f=0", {0, 1, 5, 6}), (Weights{0, 1, 0, 0}));
  EXPECT_EQ(weights("krum:f=0,m=3", {0, 1, 5, 6}), (Weights{1.0f / 3, 1.0f / 3, 1.0f / 3, 0}));
}

TEST(Krum, DistancesThatAreNotFiniteAreTheLargest) {
  const auto rule = make_combine("krum:f=0").value().rule;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double odd : {kInf, -kInf, std::numeric_limits<double>::quiet_NaN()}) {
    Weights result(3);
    rule->over_vectors()->weigh(std::vector<double>{odd, odd, 4}, {.ranks = result.size()}, result);
    EXPECT_EQ(result, (Weights{0, 1, 0})) << odd;
    rule->over_vectors()->weigh(std::vector<double>{odd, odd, odd}, {.ranks = result.size()},
                                result);
    EXPECT_EQ(result, (Weights{1, 0, 0})) << odd;
  }
}

TEST(Krum, StatisticsAreSquaredDistancesOfPairs) {
  const auto rule = make_combine("krum").value().rule;
  const VectorRule& krum = *rule->over_vectors();
  ASSERT_EQ(krum.statistics(3), 3u);
  std::vector<double> sums(3);
  krum.add_statistics(std::vector<float>{1, 2, 4, 6, 1, 3}, 3, sums);
  krum.add_statistics(std::vector<float>{0, 10, 0}, 3, sums);
  EXPECT_EQ(sums, (std::vector<double>{125, 1, 118}));
  krum.add_statistics(std::vector<float>{3e38f, -3e38f, 3e38f}, 3, sums);
  EXPECT_EQ(sums[0], std::numeric_limits<double>::infinity());
  EXPECT_EQ(sums[1], 1);

  constexpr size_t kLong = 10000;  // more than one block
  std::vector<float> rows(3 * kLong);
  for (size_t i = 0; i < kLong; ++i) rows[kLong + i] = 1;
  std::vector<double> of_long(3);
  krum.add_statistics(rows, 3, of_long);
  EXPECT_EQ(of_long, (std::vector<double>{kLong, 0, kLong}));
}

TEST(Krum, SaysHowManyRanksItNeeds) {
  const auto lack = [](const char* text, size_t ranks) {
    return lack_of_ranks(make_combine(text).value(), ranks);
  };
  EXPECT_EQ(lack("krum:f=1", 5), "");
  EXPECT_EQ(lack("krum:f=1", 4), "combine = krum:f=1,m=1 needs 2 f + 3 = 5 ranks at least");
  EXPECT_EQ(lack("krum:f=1,m=6", 7), "");
  EXPECT_EQ(lack("krum:f=1,m=6", 6), "combine = krum:f=1,m=6 needs f + m = 7 ranks at least");
}

}  // namespace
}  // namespace thinwire
