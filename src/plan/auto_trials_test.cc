// Tests of which codecs auto tries, and of what it makes of their times: predictions that are wrong
// by 30 %, noisy steps.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/random.h"
#include "plan/testing/simulated_run.h"
#include "plan/tried_decisions.h"

namespace thinwire::testing {
namespace {

// 44 kB of gradients need 0.37 s at 1 Mbit/s.
constexpr LinkSpec kThin{.bits_per_second = 1e6, .latency_seconds = 1e-5};

// Between -1 and 1, another number for each pair.
double chance(uint64_t seed, uint64_t of) {
  const RandomKey key{.seed = seed, .use = RandomUse::kTest, .step = of, .stream = 0};
  return static_cast<double>(random_block(key, 0)[0]) / 0x1p31 - 1;
}

World always(LinkSpec link, double compute) {
  return {.link = [link](uint64_t) { return link; },
          .compute = [compute](uint64_t, int) { return compute; }};
}

bool is_trial(const AutoDecision& decision) {
  return decision.why.find("a trial") != std::string::npos;
}

struct End {
  std::vector<AutoDecision> decisions;
  double seconds = 0;  // of a step with the last decision, without noise
  double least = 0;    // of those with codecs that auto may choose for all tensors
};

// `error`: how many times the predicted seconds steps with a codec take.
End end_of(World world, const std::function<double(const std::string&)>& error, uint64_t seed,
           double noise, uint64_t steps, AllowedLoss loss = AllowedLoss::kAny) {
  world.wrong = [&](const AutoDecision& decision, uint64_t step) {
    return error(decision.codec) * (1 + noise * chance(seed, step));
  };
  End end;
  run_local(2, [&](Group& group) {
    const bool small = loss == AllowedLoss::kSmall;
    SimulatedRun run(group, world, {.codec = small ? "auto:loss=small" : "auto:loss=any"});
    run.steps(steps);
    if (group.rank() != 0) return;
    end.decisions = run.exchange().decisions();
    const auto seconds = [&](const AutoDecision& decision) {
      return error(decision.codec) * run.usual(decision);
    };
    end.seconds = seconds(run.decision());
    end.least = std::numeric_limits<double>::infinity();
    for (const std::string& codec : auto_candidates(loss))
      end.least = std::min(end.least, seconds({.step = 0, .codec = codec, .why = {}}));
  });
  return end;
}

// Where all take about as long, because of the arithmetic, none promises anything; but predictions
// may be wrong.
TEST(AutoTrials, TriesWhatIsAsCloseAsPredictionsAreWrong) {
  for (const std::string fast : {"powersgd:rank=4", "sidco:density=0.01", "topk:density=0.01",
                                 "topk:density=0.01 @ sparse-reduce"}) {
    const End end = end_of(
        always(kThin, 0.3), [&](const std::string& codec) { return codec == fast ? 0.8 : 1.0; }, 1,
        0, 60);
    EXPECT_EQ(end.decisions.back().codec, fast);
    EXPECT_LE(std::count_if(end.decisions.begin(), end.decisions.end(), is_trial), 4);
  }
}

// Codecs that lose more than what holds need a promise.
TEST(AutoTrials, WithoutCompressionNothingIsTriedBecauseItIsClose) {
  const End end = end_of(
      always({.bits_per_second = 1e10, .latency_seconds = 1e-5}, 0.3),
      [](const std::string&) { return 1.0; }, 1, 0, 100);
  EXPECT_EQ(end.decisions.size(), 1u);
}

TEST(AutoTrials, EndWithTheBestWhereErrorsAreLargeAndStepsNoisy) {
  for (const double compute : {0.01, 0.3}) {
    int far = 0;
    double worst = 1;
    std::string told;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      const auto error = [&](const std::string& codec) {
        uint64_t of = 1000;
        for (const char letter : codec) of = 31 * of + static_cast<uint64_t>(letter);
        return 1 + 0.3 * chance(seed, of);
      };
      const End end = end_of(always(kThin, compute), error, seed, 0.15, compute < 0.1 ? 300 : 100);
      const double ratio = end.seconds / end.least;
      far += ratio > 1.05;
      worst = std::max(worst, ratio);
      told += " " + std::to_string(ratio) + " (" + end.decisions.back().codec + ")";
    }
    EXPECT_LE(far, 1) << compute << told;
    EXPECT_LE(worst, 1.1) << compute << told;
  }
}

// A codec beside which the arithmetic takes longer is known by the arithmetic that was seen with
// it.
TEST(AutoTrials, LeaveACodecThatSlowsTheArithmetic) {
  for (const std::string slow : {"powersgd:rank=4", "sidco:density=0.01", "topk:density=0.01",
                                 "topk:density=0.01 @ sparse-reduce"}) {
    World world = always(kThin, 0.3);
    world.slows = [&](const AutoDecision& decision) { return decision.codec == slow ? 1.3 : 1.0; };
    const End end = end_of(
        world, [](const std::string&) { return 1.0; }, 1, 0, 100);
    EXPECT_NE(end.decisions.back().codec, slow);
    EXPECT_LE(end.seconds, 1.05 * end.least);
  }
}

// Where codecs are as fast as is predicted, those with a memory are tried once each, whatever the
// noise.
TEST(AutoTrials, AreFew) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const End end = end_of(
        always(kThin, 0.3), [](const std::string&) { return 1.0; }, seed, 0.15, 400);
    EXPECT_LE(std::count_if(end.decisions.begin(), end.decisions.end(), is_trial), 4);
  }
}

// Machines become faster in the first steps of a run. What is tried after these is compared with
// fp32 as it is then.
TEST(AutoTrials, FP32GetsAnotherTrialWhereARunBeginsSlowly) {
  World world = always({.bits_per_second = 3e8, .latency_seconds = 1e-5}, 0.01);
  world.compute = [](uint64_t step, int) { return step < 9 ? 0.014 : 0.01; };
  const End end = end_of(
      world, [](const std::string& codec) { return codec == "fp32" ? 1.0 : 1.2; }, 1, 0, 200,
      AllowedLoss::kSmall);
  EXPECT_GT(end.decisions.size(), 2u);  // others were tried
  EXPECT_EQ(end.decisions.back().codec, "fp32");
  EXPECT_EQ(std::count_if(end.decisions.begin(), end.decisions.end(),
                          [](const AutoDecision& decision) {
                            return decision.why.find("in the first steps alone") !=
                                   std::string::npos;
                          }),
            1);
}

TEST(AutoTrials, AfterAChangeOfTheLinkTheRightOnesHold) {
  World world = always({}, 0.1);
  world.link = [](uint64_t step) {
    return step < 40 ? LinkSpec{.bits_per_second = 1e10, .latency_seconds = 1e-5} : kThin;
  };
  const auto exact = [](const std::string&) { return 1.0; };
  const End soon = end_of(world, exact, 1, 0.05, 90);
  EXPECT_LE(soon.seconds, 1.36 * soon.least);  // perhaps in a trial
  const End later = end_of(world, exact, 1, 0.05, 140);
  EXPECT_LE(later.seconds, 1.05 * later.least);
}

StepTimeline timeline_of(double seconds) {
  return {.tensors = {},
          .ready_seconds = {seconds / 2},
          .backward_seconds = seconds,
          .compute_seconds = seconds};
}

TEST(TriedDecisions, AreAllFasterWhereOneThatIsHeldIs) {
  const AutoDecision a{.step = 1, .codec = "int8", .why = "x"};
  const AutoDecision b{.step = 2, .codec = "fp16", .why = {}};
  TriedDecisions tried;
  EXPECT_EQ(tried.find(a), nullptr);
  EXPECT_EQ(tried.worst_factor(), 1);
  EXPECT_EQ(tried.least_factor(), 1);
  tried.learn(a, timeline_of(4), 1.5);
  tried.learn(b, timeline_of(2), 0.5);
  EXPECT_EQ(tried.worst_factor(), 1.5);
  EXPECT_EQ(tried.least_factor(), 0.5);
  tried.learn(b, timeline_of(1), 0.7);  // the machine got faster
  EXPECT_DOUBLE_EQ(tried.find(b)->factor, 0.6);
  EXPECT_DOUBLE_EQ(tried.find(b)->timeline.compute_seconds, 1);
  EXPECT_DOUBLE_EQ(tried.find(a)->timeline.compute_seconds, 2);
  EXPECT_DOUBLE_EQ(tried.find(a)->timeline.ready_seconds[0], 1);
  tried.learn({.step = 9, .codec = "int8", .why = "y"}, timeline_of(4), 1.5);  // it was lucky
  EXPECT_DOUBLE_EQ(tried.find(a)->timeline.compute_seconds, 3);
  EXPECT_DOUBLE_EQ(tried.find(b)->timeline.compute_seconds, 1);
  tried.forget();
  EXPECT_EQ(tried.find(a), nullptr);
}

TEST(TriedDecisions, TheFirstStepsOfARunDoNotCountBesideLaterOnes) {
  const AutoDecision a{.step = 1, .codec = "fp32", .why = {}};
  const AutoDecision b{.step = 2, .codec = "fp16", .why = {}};
  TriedDecisions tried;
  tried.learn(a, timeline_of(4), 1.5, true);
  EXPECT_TRUE(tried.find(a)->of_start);
  tried.learn(b, timeline_of(2), 0.5);
  tried.learn(a, timeline_of(3), 1.1);
  EXPECT_FALSE(tried.find(a)->of_start);
  EXPECT_EQ(tried.find(a)->factor, 1.1);
  EXPECT_EQ(tried.find(a)->timeline.compute_seconds, 3);
}

// A first decision comes at once. Trials of what promises nearly the same end within 50 steps, most
// of the time.
TEST(AutoTrials, AChangedLinkIsSettledSoon) {
  constexpr uint64_t kChange = 60, kSteps = 200, kRuns = 24;
  size_t prompt = 0;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    const bool is_long = seed % 2 == 0;
    World world = always(kThin, is_long ? 0.3 : 0.03);
    world.link = [&](uint64_t step) {
      return LinkSpec{.bits_per_second = step < kChange ? 1e10
                                         : is_long      ? 2e5
                                                        : 1e6,
                      .latency_seconds = 1e-5};
    };
    const auto error = [&](const std::string& codec) {
      return 1 + 0.3 * chance(seed, codec.size() + static_cast<uint64_t>(codec[0]));
    };
    const End end = end_of(world, error, seed, 0.05, kSteps);
    const auto first =
        std::find_if(end.decisions.begin(), end.decisions.end(),
                     [](const AutoDecision& decision) { return decision.step >= kChange; });
    ASSERT_NE(first, end.decisions.end());
    EXPECT_LE(first->step, kChange + 10);
    EXPECT_LE(end.decisions.back().step, kChange + 70);
    EXPECT_LE(end.seconds, 1.05 * end.least);
    prompt += end.decisions.back().step <= kChange + 50;
  }
  EXPECT_GE(prompt, kRuns * 3 / 4);
}

// One codec took much less than was predicted, so others might, too; but not less than their bytes
// take.
TEST(AutoTrials, WhatTheLinkCannotCarryIsNotTried) {
  const auto tried = [](LinkSpec link, double compute) {
    const ExchangeOptions base{.codec = "auto"};
    AutoChoice choice(base, simulated_model(), simulated_costs());
    const StepTimeline timeline{.tensors = simulated_model(),
                                .ready_seconds = std::vector<double>(3, compute),
                                .backward_seconds = compute,
                                .compute_seconds = compute};
    const Situation now{.timeline = timeline, .request = {.ranks = 2, .link = link}};
    const AutoDecision dense{.step = 0, .codec = "fp32", .why = {}};
    const AutoDecision int8{.step = 0, .codec = "int8", .why = {}};
    choice.learn(now, dense, 0.3 * choice.predicted(now, dense));
    choice.learn(now, int8, 0.25 * choice.predicted(now, dense));
    const std::optional<AutoDecision> next = choice.worth_trying(now, int8);
    return next ? next->codec : "nothing";
  };
  EXPECT_EQ(tried(kThin, 1e-4), "nothing");
  EXPECT_EQ(tried({.bits_per_second = 1e7, .latency_seconds = 1e-5}, 0.05), "fp16");
}

}  // namespace
}  // namespace thinwire::testing
