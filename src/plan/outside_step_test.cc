// Tests of steps that bypass the exchange of codec auto: means, decisions, faults, and when there
// are none.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

#include "plan/testing/simulated_run.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

constexpr LinkSpec kFast{.bits_per_second = 1e10, .latency_seconds = 1e-5};
constexpr LinkSpec kSlow{.bits_per_second = 1e7, .latency_seconds = 1e-5};

World always(LinkSpec link) {
  return {.link = [link](uint64_t) { return link; }, .compute = [](uint64_t, int) { return 0.01; }};
}

const ExchangeOptions kWithoutNorms{.codec = "auto", .norms = false};

// Largest difference of a rank's means from those of `step` in double precision.
double error_of(const SimulatedRun& run, int ranks, uint64_t step) {
  const auto all = all_gradients(run.model(), ranks, step);
  double worst = 0;
  for (size_t t = 0; t < run.values.size(); ++t)
    for (size_t k = 0; k < run.values[t].size(); ++k) {
      double mean = 0;
      for (const Tensors& given : all) mean += double{given[t][k]} / ranks;
      worst = std::max(worst, std::abs(mean - double{run.values[t][k]}));
    }
  return worst;
}

TEST(OutsideStep, GivesMeansAndIsCounted) {
  for (const int ranks : {2, 3, 5})
    run_local(ranks, [&](Group& group) {
      const World world = always(kFast);
      SimulatedRun run(group, world, kWithoutNorms);
      EXPECT_FALSE(run.step_outside().outside);  // the first step is the exchange's own
      for (uint64_t step = 1; step < 8; ++step) {
        const StepReport report = run.step_outside();
        EXPECT_TRUE(report.outside);
        EXPECT_FALSE(report.skipped);
        EXPECT_EQ(report.step, step);
        EXPECT_EQ(report.participants, static_cast<uint64_t>(ranks));
        EXPECT_GE(report.sent_bytes, report.dense_bytes);
        EXPECT_EQ(report.streams.size(), run.exchange().streams().size());
        EXPECT_LT(error_of(run, ranks, step), 1e-7);
      }
    });
}

TEST(OutsideStep, DecisionsGoOn) {
  World world = always(kFast);
  world.link = [](uint64_t step) { return step < 40 || step >= 140 ? kFast : kSlow; };
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, kWithoutNorms);
    std::vector<uint64_t> inside;
    for (uint64_t step = 0; step < 240; ++step)
      if (!run.step_outside().outside) inside.push_back(step);
    const std::vector<AutoDecision> made = run.exchange().decisions();
    ASSERT_EQ(made.size(), 3u);
    EXPECT_EQ(made[1].codec, "int8");
    EXPECT_LT(made[1].step, 90u);
    EXPECT_EQ(made[2].codec, "fp32");
    // The first step of all, those with int8, and the first one with fp32 again.
    std::vector<uint64_t> expected = {0};
    for (uint64_t step = made[1].step; step <= made[2].step; ++step) expected.push_back(step);
    EXPECT_EQ(inside, expected);
  });
}

TEST(OutsideStep, ASumThatIsNotFiniteIsSkippedAndTheExchangeNamesTheRank) {
  run_local(2, [](Group& group) {
    const World world = always(kFast);
    SimulatedRun run(group, world, kWithoutNorms);
    run.step_outside();
    if (group.rank() == 1) run.poison = std::numeric_limits<float>::quiet_NaN();
    const StepReport first = run.step_outside(), second = run.step_outside();
    run.poison = 0;
    const StepReport third = run.step_outside(), fourth = run.step_outside();
    EXPECT_TRUE(first.outside && first.skipped);
    EXPECT_EQ(first.fault.code, ErrorCode::kNonFinite);
    EXPECT_THAT(describe(first.fault), HasSubstr("'first.weight' has a sum that is not finite"));
    EXPECT_TRUE(!second.outside && second.skipped);
    EXPECT_EQ(second.fault.rank, 1);
    EXPECT_TRUE(!third.outside && !third.skipped);
    EXPECT_TRUE(fourth.outside && !fourth.skipped);
    EXPECT_EQ(fourth.step, 4u);
  });
}

TEST(OutsideStep, ARankMayAskToSkipIt) {
  run_local(3, [](Group& group) {
    const World world = always(kFast);
    SimulatedRun run(group, world, kWithoutNorms);
    run.step_outside();
    if (group.rank() == 2) {
      run.exchange().abstain(Abstention::kSkipsStep);
      run.poison = std::numeric_limits<float>::quiet_NaN();  // what its values hold does not count
    }
    const StepReport asked = run.step_outside();
    run.poison = 0;
    EXPECT_TRUE(asked.outside && asked.skipped);
    EXPECT_EQ(describe(asked.fault), "rank 2 asked to skip the step");
    for (const Values& values : run.values)
      EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float v) { return v == 0; }));
    const StepReport next = run.step_outside();
    EXPECT_TRUE(next.outside && !next.skipped);
  });
}

TEST(OutsideStep, ARequestToSkipReachesAStepOfTheExchange) {
  run_local(2, [](Group& group) {
    const World world = always(kFast);
    SimulatedRun run(group, world, kWithoutNorms);
    if (group.rank() == 1) run.exchange().abstain(Abstention::kSkipsStep);
    const StepReport asked = run.step_outside();
    EXPECT_TRUE(!asked.outside && asked.skipped);
    EXPECT_EQ(asked.fault.rank, 1);
    EXPECT_FALSE(run.step_outside().skipped);
  });
}

// Whatever one rank asks for holds for all, or they would wait for each other in different steps.
TEST(OutsideStep, ThereIsNoneWhereTheExchangeIsNeeded) {
  std::vector<ExchangeOptions> needing(5, kWithoutNorms);
  needing[1].max_skipped = 1;
  needing[3].feedback = "residual:gamma=0.5";
  needing[4].rules = {{.pattern = "last.*", .codec = "fp16"}};
  for (size_t i = 0; i < needing.size(); ++i)
    run_local(2, [&](Group& group) {
      ExchangeOptions options = needing[i];
      if (i == 0) options.norms = group.rank() == 1;
      const World world = always(kFast);
      SimulatedRun run(group, world, options);
      if (i == 2) run.exchange().set_weighted(true);
      for (int step = 0; step < 3; ++step) EXPECT_FALSE(run.step_outside().outside) << i;
    });
}

// What it owes since a codec that left something out has not gone yet.
TEST(OutsideStep, ThereIsNoneBeforeAllRanksTookPart) {
  run_local(2, [](Group& group) {
    const World world = always(kFast);
    SimulatedRun run(group, world, kWithoutNorms);
    run.exchange().set_weighted(true);
    if (group.rank() == 1) run.exchange().abstain(Abstention::kSitsOut);
    std::vector<float> values;
    const auto give = [&] {
      for (size_t i = run.model().size(); i-- > 0;) {
        values.assign(run.model()[i].count(), 1);
        run.exchange().start(i, {.data = values.data(), .count = values.size()});
      }
      return run.exchange().finish();
    };
    values.reserve(10000);
    EXPECT_EQ(give().participants, 1u);
    run.exchange().set_weighted(false);
    EXPECT_FALSE(run.exchange().bypass()->may_bypass());
    EXPECT_EQ(give().participants, 2u);
    EXPECT_TRUE(run.exchange().bypass()->may_bypass());
  });
}

TEST(OutsideStep, ARankWhoseSumsFailedTellsTheOthers) {
  run_local(2, [](Group& group) {
    group.set_deadline(std::chrono::seconds(60));
    const World world = always(kFast);
    SimulatedRun run(group, world, kWithoutNorms);
    run.step_outside();
    Bypass& bypass = *run.exchange().bypass();
    ASSERT_TRUE(bypass.may_bypass());
    if (group.rank() == 1) return bypass.abandon_outside("no sums here");
    std::vector<std::vector<float>> all;
    for (size_t i = 0; i < run.model().size(); ++i) {
      all.emplace_back(run.model()[i].count());
      bypass.start_outside(i, all.back());
    }
    try {
      bypass.finish_outside();
      ADD_FAILURE() << "the step ended";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
      EXPECT_THAT(error.what(), HasSubstr("no sums here"));
    }
  });
}

TEST(OutsideStep, MistakesAreRefused) {
  run_local(2, [](Group& group) {
    const World world = always(kFast);
    SimulatedRun run(group, world, kWithoutNorms);
    Bypass& bypass = *run.exchange().bypass();
    std::vector<float> values(100);
    EXPECT_FALSE(bypass.may_bypass());
    EXPECT_THROW(bypass.start_outside(1, values), Error);
    run.step_outside();
    EXPECT_THROW(run.exchange().start(99, {.data = values.data(), .count = 100}), Error);
    ASSERT_TRUE(bypass.may_bypass());
    EXPECT_THROW(bypass.start_outside(2, values), Error);  // which has 1000 values
    bypass.start_outside(1, values);
    EXPECT_THROW(bypass.start_outside(1, values), Error);
    EXPECT_THROW(run.exchange().start(0, {.data = values.data(), .count = 100}), Error);
    EXPECT_THROW(bypass.finish_outside(), Error);
    EXPECT_THROW(run.exchange().abstain(Abstention::kSkipsStep), Error);
  });
}

}  // namespace
}  // namespace thinwire::testing
