// Tests of shards by label: every sample belongs to one worker, alpha sets how uneven they are,
// orders need no memory.
// SPDX-License-Identifier: Apache-2.0
#include "train/label_shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "train/toy_task.h"

namespace thinwire {
namespace {

constexpr int kClasses = 10;

std::vector<int64_t> labels_of(size_t count) {
  std::vector<int64_t> labels(count);
  for (size_t i = 0; i < count; ++i) labels[i] = static_cast<int64_t>(i % kClasses);
  return labels;
}

// The largest share of a class that one worker has, mean over classes.
double unevenness(const std::vector<std::vector<uint64_t>>& shards, size_t of_a_class) {
  double sum = 0;
  for (uint64_t label = 0; label < kClasses; ++label) {
    size_t most = 0;
    for (const auto& shard : shards)
      most = std::max<size_t>(
          most, static_cast<size_t>(std::count_if(shard.begin(), shard.end(), [&](uint64_t id) {
            return id % kClasses == label;
          })));
    sum += static_cast<double>(most) / static_cast<double>(of_a_class);
  }
  return sum / kClasses;
}

TEST(LabelShards, EverySampleIsInOneShard) {
  const auto labels = labels_of(1003);
  for (const double alpha : {0.001, 0.1, 1.0, 100.0}) {
    std::vector<uint64_t> all;
    for (const auto& shard : dirichlet_shards(labels, 7, alpha, 3))
      all.insert(all.end(), shard.begin(), shard.end());
    std::sort(all.begin(), all.end());
    std::vector<uint64_t> expected(labels.size());
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected) << "alpha " << alpha;
  }
}

// The largest of 5 Dirichlet shares is near 1 for a small alpha and near 1/5 for a large one.
TEST(LabelShards, AlphaSaysHowUneven) {
  const auto labels = labels_of(10000);
  const auto at = [&](double alpha) {
    double sum = 0;
    for (uint64_t seed = 0; seed < 10; ++seed)
      sum += unevenness(dirichlet_shards(labels, 5, alpha, seed), 1000) / 10;
    return sum;
  };
  EXPECT_GT(at(0.01), 0.93);
  // E of the largest of five shares of a uniform Dirichlet: (1 + 1/2 + 1/3 + 1/4 + 1/5) / 5 =
  // 0.457.
  EXPECT_NEAR(at(1), 0.457, 0.04);
  EXPECT_NEAR(at(1000), 0.2, 0.02);
}

// Shares have mean 1/n and variance (1/n)(1 - 1/n) / (n alpha + 1).
TEST(LabelShards, SharesHaveDirichletMoments) {
  const std::vector<int64_t> labels(2000, 4);
  constexpr int kDraws = 2000;
  for (const double alpha : {0.3, 2.5}) {
    double sum = 0, squares = 0;
    for (uint64_t seed = 0; seed < kDraws; ++seed) {
      const double share =
          static_cast<double>(dirichlet_shards(labels, 4, alpha, seed)[1].size()) / 2000;
      sum += share;
      squares += share * share;
    }
    const double mean = sum / kDraws, variance = squares / kDraws - mean * mean;
    const double expected = 0.25 * 0.75 / (4 * alpha + 1);
    EXPECT_NEAR(mean, 0.25, 5 * std::sqrt(expected / kDraws));
    EXPECT_NEAR(variance / expected, 1, 0.15);
  }
}

TEST(LabelShards, AreAFunctionOfTheSeed) {
  const auto labels = labels_of(500);
  EXPECT_EQ(dirichlet_shards(labels, 4, 0.5, 3), dirichlet_shards(labels, 4, 0.5, 3));
  EXPECT_NE(dirichlet_shards(labels, 4, 0.5, 3), dirichlet_shards(labels, 4, 0.5, 4));
}

// Batches of 10 over 3 workers, the last of 5: this one has 3 a step, then 1.
TEST(ShardSampler, GoesRoundItsShardWithoutMemory) {
  const Timetable timetable{.samples = 25, .batch = 10, .steps_per_epoch = 3, .steps = 100};
  const std::vector<uint64_t> shard = {4, 8, 15, 16, 23};
  ShardSampler straight(timetable, shard, 0, 3, 9);
  std::vector<uint64_t> seen;
  for (uint64_t step = 0; step < 20; ++step) {
    const auto ids = straight.ids(step);
    EXPECT_EQ(ids.size(), step % 3 == 2 ? 1u : 3u);
    seen.insert(seen.end(), ids.begin(), ids.end());
    // Whoever begins here takes the same ones.
    ShardSampler fresh(timetable, shard, 0, 3, 9);
    const std::vector<uint64_t> again(ids.begin(), ids.end());
    const auto theirs = fresh.ids(step);
    EXPECT_TRUE(std::equal(theirs.begin(), theirs.end(), again.begin(), again.end()));
  }
  std::set<std::vector<uint64_t>> orders;
  for (size_t begin = 0; begin + 5 <= seen.size(); begin += 5) {
    std::vector<uint64_t> round(seen.begin() + static_cast<std::ptrdiff_t>(begin),
                                seen.begin() + static_cast<std::ptrdiff_t>(begin) + 5);
    orders.insert(round);
    std::sort(round.begin(), round.end());
    EXPECT_EQ(round, shard) << "round at " << begin;
  }
  EXPECT_GT(orders.size(), 4u);
}

TEST(LabelShards, TextIsChecked) {
  EXPECT_EQ(shard_alpha("dirichlet:alpha=0.25"), 0.25);
  EXPECT_THROW(shard_alpha("dirichlet:alpha=0"), Error);
  EXPECT_THROW(shard_alpha("dirichlet:beta=1"), Error);
  try {
    shard_alpha("uniform");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnknownName);
    EXPECT_STREQ(error.what(), "unknown shards 'uniform'; known: dirichlet");
  }
}

// The trainer: two workers with shards of their own see other batches, and repeat them.
TEST(LabelShards, WorkersTrainOnTheirOwn) {
  const ToyOptions plain{.settings = {{"sync.method", "average:tau=2"}}};
  ToyOptions sharded = plain;
  sharded.settings.emplace_back("data.shards", "dirichlet:alpha=0.3");
  const auto one = run_toy(2, sharded), two = run_toy(2, sharded), all = run_toy(2, plain);
  EXPECT_TRUE(same_bits(one[0].weights, two[0].weights));
  EXPECT_FALSE(same_bits(one[0].weights, all[0].weights));
  EXPECT_EQ(one[0].summary.samples, all[0].summary.samples);
}

TEST(LabelShards, AWorkerWithoutSamplesIsNamed) {
  ToyOptions toy{.settings = {{"data.shards", "dirichlet:alpha=0.001"}}};
  try {
    run_toy(8, toy);  // three classes cannot be with eight workers
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("is left without samples"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace thinwire
