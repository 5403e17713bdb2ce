// Mixes before rules: their texts, what they need, and how buckets are drawn.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "exchange/rules/mix.h"

namespace thinwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// By bucket, what each of `ranks` ranks counts in it.
std::vector<std::vector<float>> buckets(size_t size, size_t ranks, uint64_t step,
                                        uint64_t seed = 1) {
  const auto rule =
      make_combine("bucketing:s=" + std::to_string(size) + " then median").value().rule;
  const VectorRule& of_vectors = *rule->over_vectors();
  std::vector<float> weights(of_vectors.weights(ranks));
  of_vectors.weigh(std::vector<double>(of_vectors.statistics(ranks)),
                   {.ranks = ranks, .seed = seed, .step = step}, weights);
  std::vector<std::vector<float>> rows;
  for (size_t begin = 0; begin < weights.size(); begin += ranks)
    rows.emplace_back(weights.begin() + static_cast<std::ptrdiff_t>(begin),
                      weights.begin() + static_cast<std::ptrdiff_t>(begin + ranks));
  return rows;
}

TEST(MixedRule, EveryRankIsInOneBucket) {
  for (const size_t size : {1, 2, 3, 7, 9})
    for (uint64_t step = 0; step < 5; ++step) {
      const auto rows = buckets(size, 7, step);
      ASSERT_EQ(rows.size(), (7 + size - 1) / size);
      for (size_t rank = 0; rank < 7; ++rank)
        EXPECT_EQ(std::count_if(rows.begin(), rows.end(),
                                [&](const auto& row) { return row[rank] != 0; }),
                  1);
      for (const auto& row : rows) {
        const auto members = static_cast<size_t>(
            std::count_if(row.begin(), row.end(), [](float weight) { return weight != 0; }));
        EXPECT_EQ(members, &row == &rows.back() ? 7 - (rows.size() - 1) * size : size);
        for (const float weight : row)
          EXPECT_TRUE(weight == 0 || weight == 1 / static_cast<float>(members));
      }
    }
}

TEST(MixedRule, BucketsAreDrawnBySeedAndStep) {
  std::set<std::vector<std::vector<float>>> seen;
  for (uint64_t step = 0; step < 20; ++step) seen.insert(buckets(2, 9, step));
  EXPECT_GT(seen.size(), 15u);
  EXPECT_EQ(buckets(2, 9, 4), buckets(2, 9, 4));
  EXPECT_NE(buckets(2, 9, 4), buckets(2, 9, 4, 2));
}

// 1, 2, 3 and 4 in two buckets, whose mean is that of all; the first row is the result's place.
TEST(MixedRule, TheMeanOfBucketsIsTheMean) {
  for (const char* text : {"bucketing:s=2 then mean", "bucketing:s=2 then median",
                           "bucketing:s=4 then median", "bucketing:s=2 then cge:f=0"}) {
    const auto rule = make_combine(text).value().rule;
    const VectorRule& of_vectors = *rule->over_vectors();
    std::vector<float> rows;
    for (const float x : {1, 2, 3, 4}) rows.insert(rows.end(), 1000, x);
    std::vector<double> statistics(of_vectors.statistics(4));
    of_vectors.add_statistics(rows, 4, statistics);
    std::vector<float> weights(of_vectors.weights(4));
    of_vectors.weigh(statistics, {.ranks = 4}, weights);
    const auto result = std::span(rows).first(1000);
    rule->combine(rows, 4, weights, result);
    for (const float x : result) EXPECT_EQ(x, 2.5f) << text;
  }
}

TEST(MixedRule, TextsNameMixesInTheirOrder) {
  const auto canonical = [](const char* text) { return make_combine(text).value().canonical; };
  EXPECT_EQ(canonical("nnm then median"), "nnm:f=1 then median");
  EXPECT_EQ(canonical("clip then nnm:f=2 then krum"), "clip:norm=1 then nnm:f=2 then krum:f=1,m=1");
  const auto why = [](const char* text) { return make_combine(text).status().message(); };
  EXPECT_THAT(
      why("nmm then median"),
      HasSubstr("exchange: unknown combine before 'then' 'nmm'; known: nnm, bucketing, clip"));
  EXPECT_THAT(why("nnm then nothing"), HasSubstr("unknown combine 'nothing'"));
  EXPECT_THAT(why("nnm:s=1 then median"), HasSubstr("'nnm'"));
  EXPECT_THAT(why("median then nnm"), HasSubstr("unknown combine before 'then' 'median'"));
  EXPECT_THAT(why("nnm then "), HasSubstr("exchange: "));
  EXPECT_EQ(
      why("nnm then licm"),
      "exchange: combine = licm:gamma=10 decides by single values of the ranks, so that no mix "
      "can stand before it");
}

TEST(MixedRule, SaysHowManyRanksItNeeds) {
  const auto lack = [](const char* text, size_t ranks) {
    return lack_of_ranks(make_combine(text).value(), ranks);
  };
  EXPECT_EQ(lack("nnm:f=2 then median", 5), "");
  EXPECT_EQ(lack("nnm:f=2 then median", 4),
            "combine = nnm:f=2 then median needs 2 f + 1 = 5 ranks at least");
  EXPECT_EQ(lack("nnm:f=1 then bulyan:f=1", 6),
            "combine = nnm:f=1 then bulyan:f=1 needs 4 f + 3 = 7 ranks at least");
  EXPECT_EQ(lack("bucketing:s=2 then trimmed_mean:f=1", 5), "");
  EXPECT_EQ(
      lack("bucketing:s=2 then trimmed_mean:f=1", 4),
      "combine = bucketing:s=2 then trimmed_mean:f=1 needs s (2 f + 1 - 1) + 1 = 5 ranks at least");
  EXPECT_EQ(lack("bucketing:s=9 then median", 1), "");
}

}  // namespace
}  // namespace thinwire
