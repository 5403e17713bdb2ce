// Tests of cge by itself: which ranks it leaves out, and by which numbers.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "exchange/rules/vector_rule.h"

namespace thinwire {
namespace {

std::vector<float> weights(const char* text, const std::vector<double>& statistics, size_t ranks) {
  const auto rule = make_combine(text).value().rule;
  std::vector<float> result(ranks, -1.0f);
  rule->over_vectors()->weigh(statistics, {.ranks = result.size()}, result);
  return result;
}

using Weights = std::vector<float>;

TEST(Cge, LeavesOutTheLargestNorms) {
  EXPECT_EQ(weights("cge:f=0", {5, 1}, 2), (Weights{0.5f, 0.5f}));
  EXPECT_EQ(weights("cge:f=1", {5, 1, 7, 2, 3}, 5), (Weights{0.25f, 0.25f, 0, 0.25f, 0.25f}));
  EXPECT_EQ(weights("cge:f=2", {5, 1, 7, 2, 0}, 5), (Weights{0, 1.0f / 3, 0, 1.0f / 3, 1.0f / 3}));
}

TEST(Cge, LeavesOutTheHigherRankOfEqualNorms) {
  EXPECT_EQ(weights("cge:f=1", {4, 4, 4}, 3), (Weights{0.5f, 0.5f, 0}));
  EXPECT_EQ(weights("cge:f=1", {4, 4, 1}, 3), (Weights{0.5f, 0, 0.5f}));
}

TEST(Cge, TakesWhatIsNotFiniteForTheLargest) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double odd : {kInf, -kInf, kNan})
    EXPECT_EQ(weights("cge:f=1", {odd, 9e300, 1}, 3), (Weights{0, 0.5f, 0.5f})) << odd;
  EXPECT_EQ(weights("cge:f=1", {kNan, kInf, kNan}, 3), (Weights{0.5f, 0.5f, 0}));
}

// Those of a vector are the sums of those of its parts.
TEST(Cge, StatisticsAreSquaredNorms) {
  const auto rule = make_combine("cge").value().rule;
  const VectorRule& cge = *rule->over_vectors();
  ASSERT_EQ(cge.statistics(3), 3u);
  std::vector<double> sums(3);
  const std::vector<float> first = {1, 2, 0, 0, -3e38f, 4}, second = {1, 0, 5};
  cge.add_statistics(first, 3, sums);
  cge.add_statistics(second, 3, sums);
  cge.add_statistics({}, 3, sums);
  EXPECT_EQ(sums[0], 6);
  EXPECT_EQ(sums[1], 0);
  EXPECT_NEAR(sums[2], 9e76, 1e70);
}

TEST(VectorRule, TheResultIsTheWeightedSumOfRows) {
  const auto rule = make_combine("cge").value().rule;
  std::vector<float> rows = {1, -0.0f, 3e38f, 3e38f, 8, 2};
  std::vector<float> result(2);
  rule->combine(rows, 3, std::vector<float>{0.5f, 0, 0.5f}, result);
  EXPECT_EQ(result, (std::vector<float>{4.5f, 1}));
  rule->combine(rows, 3, std::vector<float>{0, 0, 1}, std::span(rows).first(2));  // in place
  EXPECT_EQ(rows[0], 8);
  EXPECT_EQ(rows[1], 2);
}

}  // namespace
}  // namespace thinwire
