// Tests of timetable, sampler and schedule: samples once per epoch, parts, learning rates.
// SPDX-License-Identifier: Apache-2.0
#include "train/timetable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>

#include "thinwire/trainer.h"
#include "train/schedule.h"

namespace thinwire {
namespace {

using ::testing::ElementsAre;

Options recipe(std::vector<std::pair<std::string, std::string>> given) {
  return parse_options("test", recipe_keys(), given).value();
}

TEST(SampleRange, PartsAreContiguousAndDifferByOneAtMost) {
  for (const uint64_t size : {0, 1, 2, 7, 64, 65}) {
    for (const uint64_t count : {1, 2, 3, 9}) {
      uint64_t at = 5, least = UINT64_MAX, most = 0;
      for (uint64_t i = 0; i < count; ++i) {
        const SampleRange part = SampleRange{.begin = 5, .size = size}.part(i, count);
        EXPECT_EQ(part.begin, at);
        at += part.size;
        least = std::min(least, part.size);
        most = std::max(most, part.size);
      }
      EXPECT_EQ(at, 5 + size);
      EXPECT_LE(most - least, 1u);
    }
  }
}

TEST(Timetable, CountsStepsAndSamples) {
  const auto table = make_timetable(
      recipe({{"train.batch", "32"}, {"train.epochs", "2"}, {"train.evaluate_every", "0.5"}}), 100);
  EXPECT_EQ(table.steps_per_epoch, 4u);
  EXPECT_EQ(table.steps, 8u);
  EXPECT_EQ(table.batch_of(3).size, 4u);  // the rest of the epoch
  EXPECT_EQ(table.batch_of(4).begin, 0u);
  EXPECT_EQ(table.samples_before(5), 132u);
  EXPECT_EQ(table.samples_before(8), 200u);
  EXPECT_EQ(table.epoch(6), 1.5);
  std::vector<uint64_t> evaluated, saved;
  for (uint64_t step = 0; step < table.steps; ++step) {
    if (table.evaluates_after(step)) evaluated.push_back(step);
    if (table.checkpoints_after(step)) saved.push_back(step);
  }
  EXPECT_THAT(evaluated, ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(saved, ElementsAre(3, 7));
}

TEST(Timetable, PartsOfEpochsAreNotRoundedToAStepMore) {
  EXPECT_EQ(steps_of(1.1, 100), 110u);  // 1.1 * 100 > 110
  EXPECT_EQ(steps_of(0.07, 100), 7u);
  EXPECT_EQ(steps_of(0.071, 100), 8u);
  EXPECT_EQ(steps_of(3, 1'000'000), 3'000'000u);
  EXPECT_EQ(steps_of(0, 100), 0u);
}

TEST(Timetable, EndsEarlyAndAlwaysTestsAtTheEnd) {
  const auto table = make_timetable(
      recipe({{"train.batch", "10"}, {"train.max_steps", "3"}, {"train.evaluate_every", "0"}}), 95);
  EXPECT_EQ(table.steps, 3u);
  EXPECT_FALSE(table.evaluates_after(0));
  EXPECT_TRUE(table.evaluates_after(2));
  EXPECT_EQ(make_timetable(recipe({{"train.batch", "64"}, {"train.epochs", "0.01"}}), 64).steps,
            1u);
  EXPECT_EQ(make_timetable(recipe({{"train.epochs", "0"}}), 64).steps, 0u);
  EXPECT_EQ(make_timetable(recipe({{"train.batch", "500"}}), 64).batch, 64u);
  EXPECT_THROW(make_timetable(recipe({}), 0), Error);
}

TEST(Sampler, EveryRankTogetherSeesEverySampleOncePerEpoch) {
  const Options options =
      recipe({{"train.batch", "16"}, {"train.epochs", "3"}, {"train.seed", "7"}});
  const auto table = make_timetable(options, 103);
  std::vector<std::vector<uint64_t>> orders;
  for (uint64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<uint64_t> seen;
    for (uint64_t s = 0; s < table.steps_per_epoch; ++s) {
      const uint64_t step = epoch * table.steps_per_epoch + s;
      for (uint64_t rank = 0; rank < 3; ++rank) {
        Sampler sampler(options, table);  // each rank has its own, and may start anywhere
        const auto ids = sampler.ids(step, table.batch_of(step).part(rank, 3));
        seen.insert(seen.end(), ids.begin(), ids.end());
      }
    }
    orders.push_back(seen);
    std::sort(seen.begin(), seen.end());
    std::vector<uint64_t> all(103);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen, all);
  }
  EXPECT_NE(orders[0], orders[1]);
  Sampler other(recipe({{"train.seed", "8"}}), table);
  const auto ids = other.ids(0, {.begin = 0, .size = 16});
  EXPECT_NE(std::vector<uint64_t>(ids.begin(), ids.end()),
            std::vector<uint64_t>(orders[0].begin(), orders[0].begin() + 16));
}

TEST(Timetable, DropsTheLastBatchOnRequest) {
  const auto table =
      make_timetable(recipe({{"train.batch", "10"}, {"train.drop_last", "true"}}), 95);
  EXPECT_EQ(table.steps_per_epoch, 9u);
  EXPECT_EQ(table.samples, 90u);
  EXPECT_EQ(table.batch_of(8).size, 10u);
  EXPECT_EQ(table.samples_before(9), 90u);
}

TEST(Sampler, FixedBatchesComeAgainInAnotherOrder) {
  for (const char* drop_last : {"false", "true"}) {
    const Options options = recipe({{"train.batch", "10"},
                                    {"train.epochs", "9"},
                                    {"train.fixed_batches", "true"},
                                    {"train.drop_last", drop_last}});
    const auto table = make_timetable(options, 95);
    std::vector<std::vector<uint64_t>> of_batch(table.steps_per_epoch);
    std::vector<std::vector<uint64_t>> orders(3);
    for (uint64_t step = 0; step < 3 * table.steps_per_epoch; ++step) {
      Sampler sampler(options, table);
      const auto ids = sampler.ids(step, table.batch_of(step));
      std::vector<uint64_t>& known = of_batch.at(sampler.batch_id(step));
      if (known.empty()) known.assign(ids.begin(), ids.end());
      EXPECT_EQ(known, std::vector<uint64_t>(ids.begin(), ids.end()));
      orders[step / table.steps_per_epoch].push_back(sampler.batch_id(step));
    }
    EXPECT_NE(orders[0], orders[1]);
    EXPECT_NE(orders[1], orders[2]);
    std::set<uint64_t> seen;
    for (const auto& ids : of_batch) seen.insert(ids.begin(), ids.end());
    EXPECT_EQ(seen.size(), table.samples);
  }
}

TEST(Schedule, CosineOfAGivenPeriodEndsOnItsWay) {
  const Options options = recipe({{"train.batch", "10"},
                                  {"train.epochs", "2"},
                                  {"optimizer.lr", "0.5"},
                                  {"schedule.name", "cosine"},
                                  {"schedule.period", "4"}});
  const auto table = make_timetable(options, 10);
  EXPECT_DOUBLE_EQ(learning_rate(options, table, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(options, table, 1), 0.25 * (1 + std::sqrt(0.5)));
}

TEST(Schedule, StepsAtMilestones) {
  const Options options = recipe({{"train.batch", "10"},
                                  {"train.epochs", "4"},
                                  {"optimizer.lr", "0.5"},
                                  {"schedule.name", "step"},
                                  {"schedule.milestones", "1;2.5"},
                                  {"schedule.factor", "0.1"}});
  const auto table = make_timetable(options, 20);  // two steps an epoch
  std::vector<double> rates;
  for (uint64_t step = 0; step < table.steps; ++step)
    rates.push_back(learning_rate(options, table, step));
  EXPECT_THAT(rates, ElementsAre(0.5, 0.5, 0.05, 0.05, 0.05, 0.5 * (0.1 * 0.1), 0.5 * (0.1 * 0.1),
                                 0.5 * (0.1 * 0.1)));
}

TEST(Schedule, CosineFromTheRateToTheFloorAfterWarmUp) {
  const Options options = recipe({{"train.batch", "10"},
                                  {"train.epochs", "10"},
                                  {"optimizer.lr", "0.4"},
                                  {"schedule.name", "cosine"},
                                  {"schedule.floor", "0.25"},
                                  {"schedule.warmup", "2"}});
  const auto table = make_timetable(options, 20);  // 20 steps, 4 of them warm-up
  EXPECT_DOUBLE_EQ(learning_rate(options, table, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(options, table, 3), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(options, table, 4), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(options, table, 12), 0.4 * (0.25 + 0.75 / 2));
  EXPECT_DOUBLE_EQ(learning_rate(options, table, 19),
                   0.4 * (0.25 + 0.75 * (1 + std::cos(std::numbers::pi * 15 / 16)) / 2));
}

TEST(RecipeKeys, DefaultsFitTheirOwnRows) {
  EXPECT_EQ(recipe({}).integer("train.batch"), 64);
  for (const OptionInfo& row : recipe_keys()) {
    EXPECT_NE(row.name.find('.'), std::string_view::npos) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
  }
}

}  // namespace
}  // namespace thinwire
