// Tests of codec auto under adversity: links, computation and ranks that change, predictions that
// are wrong.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <vector>

#include "plan/testing/simulated_run.h"

namespace thinwire::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// 44 kB of gradients need 3.7 ms at 100 Mbit/s, and 37 ms at 10 Mbit/s.
constexpr LinkSpec kFast{.bits_per_second = 1e10, .latency_seconds = 1e-5};
constexpr LinkSpec kSlow{.bits_per_second = 1e7, .latency_seconds = 1e-5};
constexpr uint64_t kPrompt = 50;  // steps

// A number below `count` for each ten steps, in no order.
uint64_t chance(uint64_t step, uint64_t count) {
  return ((step / 10 + 1) * 0x9e3779b97f4a7c15 >> 40) % count;
}

World always(LinkSpec link, double compute) {
  return {.link = [link](uint64_t) { return link; },
          .compute = [compute](uint64_t, int) { return compute; }};
}

std::string codec_after(int ranks, const World& world, const std::string& codec, uint64_t steps) {
  std::string found;
  run_local(ranks, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = codec});
    run.steps(steps);
    if (group.rank() == 0) found = run.decision().codec;
  });
  return found;
}

TEST(AutoExchange, ChoosesByTheLinkAndByWhatMayBeLost) {
  EXPECT_EQ(codec_after(2, always(kFast, 0.01), "auto:loss=any", 40), "fp32");
  EXPECT_EQ(codec_after(2, always(kSlow, 0.01), "auto:loss=none", 40), "fp32");
  EXPECT_EQ(codec_after(2, always(kSlow, 0.01), "auto", 40), "int8");
  EXPECT_THAT(codec_after(3, always(kSlow, 0.01), "auto:loss=any", 40),
              AnyOf(HasSubstr("topk"), HasSubstr("sidco"), HasSubstr("powersgd")));
}

// Without compression nothing needs to be known, and a single rank asks nobody.
TEST(AutoExchange, ASingleRankProbesNothing) {
  run_local(1, [](Group& group) {
    const World world = always(kSlow, 0.01);
    SimulatedRun run(group, world, {.codec = "auto"});
    run.steps(30);
    EXPECT_EQ(run.probes, 0);
    EXPECT_EQ(run.exchange().decisions().size(), 1u);
    EXPECT_THAT(run.decision().why, HasSubstr("a single rank"));
  });
}

// Tensors that were not started count as zeros: the step is one like others, on all ranks.
TEST(AutoExchange, AStepWithoutTensorsOnOneRankIsAStep) {
  run_local(2, [](Group& group) {
    group.set_deadline(std::chrono::seconds(20));
    const World world = always(kSlow, 0.01);
    SimulatedRun run(group, world, {.codec = "auto"});
    for (int step = 0; step < 40; ++step) {
      if (step % 7 == 3 && group.rank() == 1)
        run.exchange().finish();
      else
        run.step();
    }
    EXPECT_EQ(run.decision().codec, "int8");
    const auto decided = run.decision().step;
    EXPECT_EQ(group.max(decided), decided);
  });
}

// A thread may ask for a step that is long over while the next one is under way.
TEST(AutoExchange, AnOldTicketDoesNotEndTheStepUnderWay) {
  run_local(2, [](Group& group) {
    group.set_deadline(std::chrono::seconds(20));
    const World world = always(kSlow, 0.01);
    SimulatedRun run(group, world, {.codec = "auto"});
    std::optional<Ticket> old;
    for (uint64_t step = 0; step < 40; ++step) {
      Tensors values = gradients(run.model(), group.rank(), step);
      Ticket ticket;
      for (size_t i = values.size(); i-- > 0;) {
        ticket = run.exchange().start(i, {.data = values[i].data(), .count = values[i].size()});
        if (old && i == 1 && group.rank() == 1) run.exchange().wait(*old);
      }
      run.exchange().finish();
      old = ticket;
    }
    const auto decisions = run.exchange().decisions().size();
    EXPECT_EQ(group.max(decisions), decisions);
  });
}

TEST(AutoExchange, FollowsALinkThatChangesInMidRun) {
  World world = always(kFast, 0.01);
  world.link = [](uint64_t step) { return step < 40 || step >= 140 ? kFast : kSlow; };
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto"});
    run.steps(40);
    EXPECT_EQ(run.decision().codec, "fp32");
    run.steps(kPrompt);
    EXPECT_EQ(run.decision().codec, "int8");
    EXPECT_THAT(run.decision().why, AllOf(HasSubstr("x as fast as fp32"), HasSubstr("10 Mbit/s"),
                                          HasSubstr("fp32 took")));
    run.steps(50 + kPrompt);
    EXPECT_EQ(run.decision().codec, "fp32");
    EXPECT_EQ(run.exchange().decisions().size(), 3u);  // no more than needed
  });
}

// Probes whose time was over before messages told the rate: the link is as it was.
TEST(AutoExchange, AProbeThatHadTooLittleTimeChangesNothing) {
  World world = always(kFast, 0.01);
  world.probed = [](const LinkSpec& real, uint64_t step) {
    return step < 20 ? ProbedLink{real, /*at_least=*/false}
                     : ProbedLink{{.bits_per_second = 1e6, .latency_seconds = 1e-5},
                                  /*at_least=*/true};
  };
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto:loss=any"});
    run.steps(1200);
    EXPECT_EQ(run.probes, 2);
    // The bound is far below the known rate: the next probe waits for 20 times as many seconds.
    run.steps(5000);
    EXPECT_GE(run.probes, 3);
    EXPECT_GE(run.probe_seconds, 0.39);
    EXPECT_EQ(run.exchange().decisions().size(), 1u) << run.decision().why;
  });
}

// 1 % of the time that passes, and of a latency of 20 ms a probe needs ten.
TEST(AutoExchange, ProbesAreFewerWhereTheyTakeLonger) {
  const auto probes = [](double latency) {
    int count = 0;
    run_local(2, [&](Group& group) {
      const World world = always({.bits_per_second = 1e10, .latency_seconds = latency}, 0.1);
      SimulatedRun run(group, world, {.codec = "auto"});
      run.steps(500);  // of at least 0.1 s
      if (group.rank() == 0) count = run.probes;
    });
    return count;
  };
  EXPECT_GE(probes(1e-5), 6);
  EXPECT_LE(probes(0.02), 5);
}

// Rank 0 tells the others how long, with all digits, whatever their locales.
TEST(AutoExchange, AllRanksProbeForTheSameTime) {
  World world = always(kFast, 0.0123456789);
  world.link = [](uint64_t step) { return step < 40 ? kFast : kSlow; };
  std::vector<double> seconds(2);
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto"});
    run.steps(40 + kPrompt);
    EXPECT_GE(run.probes, 2);
    seconds[static_cast<size_t>(group.rank())] = run.probe_seconds;
  });
  EXPECT_EQ(seconds[0], seconds[1]);
  EXPECT_GT(std::abs(1e6 * seconds[0] - std::round(1e6 * seconds[0])), 1e-6) << seconds[0];
}

// What would be measured later would not be kept in the file, and all ranks would wait for it at
// once.
TEST(AutoExchange, AllCostsAreMeasuredBeforeTheFirstPrediction) {
  const ExchangeOptions base{
      .codec = "auto:loss=none",
      .feedback = "ahead",
      .rules = {{.pattern = "first.weight", .codec = "int8", .feedback = "none"}}};
  AutoChoice choice(base, simulated_model(), CostTable());
  for (const ExchangeOptions& setting : settings_to_measure(base, simulated_model()))
    choice.measure(setting);
  const size_t measured = choice.costs().size();
  const StepTimeline timeline = assumed_timeline(simulated_model(), 0.01);
  const Situation now{.timeline = timeline, .request = {.ranks = 2, .link = kSlow}};
  EXPECT_LT(choice.expected(now, {.step = 0, .codec = "fp32", .why = {}}), 1);
  EXPECT_EQ(choice.costs().size(), measured);
}

TEST(AutoExchange, FollowsComputationThatGetsFaster) {
  World world = always(kSlow, 1);
  world.compute = [](uint64_t step, int) { return step < 40 ? 1 : 0.005; };
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto"});
    run.steps(40);
    EXPECT_EQ(run.decision().codec, "fp32");  // hidden behind the backward pass, but for its end
    run.steps(kPrompt);
    EXPECT_EQ(run.decision().codec, "int8");
  });
}

// All wait for it, and meanwhile there is time to send every byte.
TEST(AutoExchange, ARankThatIsSlowCounts) {
  World world = always(kSlow, 0.005);
  EXPECT_EQ(codec_after(3, world, "auto", 40), "int8");
  world.compute = [](uint64_t, int rank) { return rank == 2 ? 3 : 0.005; };
  EXPECT_EQ(codec_after(3, world, "auto", 40), "fp32");
}

TEST(AutoExchange, GoesBackFromACodecThatDisappoints) {
  World world = always(kSlow, 0.01);
  world.wrong = [](const AutoDecision& decision, uint64_t) {
    return decision.codec == "fp32" ? 1.0 : 5.0;
  };
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto"});
    run.steps(200);
    EXPECT_EQ(run.decision().codec, "fp32");
    EXPECT_LE(run.exchange().decisions().size(), 5u);  // each other codec is tried once at most
    EXPECT_GE(run.exchange().decisions().size(), 3u);
  });
}

// Predictions of two codecs may be wrong by more than what they promise beside each other.
TEST(AutoExchange, TriesWhatMightBeFasterThanPredicted) {
  World world = always({.bits_per_second = 1e6, .latency_seconds = 1e-5}, 0.0001);
  for (const std::string fast : {"topk:density=0.01", "sidco:density=0.01"}) {
    world.wrong = [&](const AutoDecision& decision, uint64_t) {
      return decision.codec == fast ? 0.6 : 1.0;
    };
    EXPECT_EQ(codec_after(2, world, "auto:loss=any", 80), fast);
  }
}

// The least number of steps from a trial to the decision that follows it.
uint64_t shortest_trial(LinkSpec link) {
  uint64_t shortest = 1000;
  run_local(2, [&](Group& group) {
    const World world = always(link, 0.0001);
    SimulatedRun run(group, world, {.codec = "auto:loss=any"});
    run.steps(300);
    const std::vector<AutoDecision> made = run.exchange().decisions();
    for (size_t i = 0; i + 1 < made.size() && group.rank() == 0; ++i)
      if (made[i].why.find("a trial") != std::string::npos)
        shortest = std::min(shortest, made[i + 1].step - made[i].step);
  });
  return shortest;
}

// Times of short steps spread more, so more of them are measured.
TEST(AutoExchange, ATrialOfShortStepsHasMoreOfThem) {
  EXPECT_EQ(shortest_trial({.bits_per_second = 1e8, .latency_seconds = 1e-5}), 32u);
  EXPECT_EQ(shortest_trial({.bits_per_second = 1e5, .latency_seconds = 1e-5}), 8u);
}

// What is known of codecs is forgotten when the link seems to be another one, and then they are
// tried again. Steps of a second are probed after every ten.
TEST(AutoExchange, TrialsAreFewWhereProbesDisagree) {
  World world = always({}, 0.005);
  world.link = [](uint64_t step) {
    return LinkSpec{.bits_per_second = chance(step, 2) == 0 ? 1e4 : 2e4, .latency_seconds = 1e-5};
  };
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto:loss=any"});
    run.steps(1500);
    EXPECT_GE(run.probes, 20);
    size_t trials = 0;
    for (const AutoDecision& decision : run.exchange().decisions())
      trials += decision.why.find("a trial") != std::string::npos;
    EXPECT_GE(trials, 8u);
    EXPECT_LE(trials, 8 + 1500 / 80);
  });
}

// Steps that take now more, now less, by what a busy machine makes of them.
TEST(AutoExchange, NoiseChangesNothing) {
  World world = always({.bits_per_second = 1e8, .latency_seconds = 1e-5}, 0.01);
  world.compute = [](uint64_t step, int rank) {
    return 0.01 *
           (1 + 0.1 * static_cast<double>((7 * step + 3 * static_cast<uint64_t>(rank)) % 5) / 5) *
           (step % 17 == 0 ? 3 : 1);
  };
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto"});
    run.steps(400);
    EXPECT_LE(run.exchange().decisions().size(), 2u);
  });
}

// Two codecs that are equally fast are both tried, and then one of them stays, although steps take
// up to 8 % longer for some ten steps in a row. Steps are long, so that a look at the link, after
// which codecs may change, is due in every third window.
TEST(AutoExchange, NoiseDoesNotMakeCodecsAlternate) {
  World world = always({.bits_per_second = 1e5, .latency_seconds = 1e-5}, 0.005);
  world.wrong = [](const AutoDecision&, uint64_t step) {
    return 1 + 0.02 * static_cast<double>(chance(step, 5));
  };
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto:loss=any"});
    run.steps(100);
    const auto decisions = run.exchange().decisions().size();
    EXPECT_GE(decisions, 3u);
    const int probes = run.probes;
    run.steps(1000);
    EXPECT_GE(run.probes, probes + 10);
    EXPECT_LE(run.exchange().decisions().size(), decisions + 1);
  });
}

TEST(AutoExchange, LosesNothingThatIsOwed) {
  World world = always(kSlow, 0.01);
  world.link = [](uint64_t step) { return step < 60 ? kSlow : kFast; };
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto:loss=any"});
    std::vector<std::vector<double>> left;
    for (const TensorSpec& tensor : run.model()) left.emplace_back(tensor.count());
    double most = 0;
    for (uint64_t step = 0; step < 700; ++step) {
      run.step();
      const auto all = all_gradients(run.model(), 2, step);
      for (size_t t = 0; t < left.size(); ++t)
        for (size_t k = 0; k < left[t].size(); ++k) {
          for (const Tensors& given : all) left[t][k] += double{given[t][k]} / 2;
          left[t][k] -= run.values[t][k];
          most = std::max(most, std::abs(left[t][k]));
        }
    }
    EXPECT_GE(run.exchange().decisions().size(), 2u);
    EXPECT_EQ(run.decision().codec, "fp32");
    EXPECT_GT(most, 1e-3);
    for (const auto& tensor : left)
      for (const double value : tensor) ASSERT_NEAR(value, 0, 1e-6);
  });
}

TEST(AutoExchange, CountsWhatRanksTellEachOther) {
  const World world = always(kFast, 0.01);
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto"});
    uint64_t least = UINT64_MAX, most = 0;
    for (int i = 0; i < 30; ++i) {
      const uint64_t sent = run.step().sent_bytes;
      least = std::min(least, sent);
      most = std::max(most, sent);
    }
    EXPECT_GT(most, least);
  });
}

TEST(AutoExchange, AChangeByTheCallerEndsIt) {
  World world = always(kFast, 0.01);
  world.link = [](uint64_t step) { return step < 20 ? kFast : kSlow; };
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto"});
    run.steps(20);
    ExchangeOptions options = run.exchange().options();
    EXPECT_EQ(options.codec, "auto");
    options.codec = "fp16";
    run.exchange().change(options);
    run.steps(60);
    EXPECT_EQ(run.exchange().options().codec, "fp16");
    EXPECT_EQ(run.exchange().decisions().size(), 1u);
  });
}

}  // namespace
}  // namespace thinwire::testing
