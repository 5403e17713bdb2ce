// Tests of recorded decisions: text and back, runs that follow them, checkpoints.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "exchange/testing/error_of.h"
#include "plan/testing/simulated_run.h"

namespace thinwire::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

World changing() {
  return {.link =
              [](uint64_t step) {
                return LinkSpec{.bits_per_second = step < 30 ? 1e10 : 1e7, .latency_seconds = 1e-5};
              },
          .compute = [](uint64_t, int) { return 0.01; }};
}

bool same(const std::vector<AutoDecision>& a, const std::vector<AutoDecision>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.step == other.step && one.codec == other.codec && one.others == other.others &&
           one.why == other.why;
  });
}

std::string text_file(const std::string& text) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto path =
      std::filesystem::temp_directory_path() / (std::string("thinwire-") + test->name() + ".txt");
  std::ofstream(path) << text;
  return path.string();
}

TEST(AutoRecord, TextAndBack) {
  const std::vector<AutoDecision> all = {{.step = 0, .codec = "fp32", .why = "first"},
                                         {.step = 40,
                                          .codec = "topk:density=0.01 @ sparse-reduce",
                                          .others = {{"a weight[0]", "fp32"}, {"b", "int8"}},
                                          .why = "slow"}};
  EXPECT_TRUE(same(decisions_from(to_text(all)).value(), all));
  const auto why = [](const std::string& text) { return decisions_from(text).status().message(); };
  EXPECT_THAT(why("codecs\n"), HasSubstr("line 1: is not 'thinwire decisions 1'"));
  const std::string title = "thinwire decisions 1\n";
  EXPECT_THAT(why(title), HasSubstr("there is no decision"));
  EXPECT_THAT(why(title + "0\tfp32\n# x\n5 int8\n"),
              HasSubstr("line 4: is not a step and a codec"));
  EXPECT_THAT(why(title + "0\tfp32\tint8\n"), HasSubstr("line 2"));
  EXPECT_THAT(why(title + "5\tfp32\n5\tint8\n"), HasSubstr("line 3: steps do not ascend"));
}

// Exceptions are by name, whatever letters are in it.
TEST(AutoRecord, NamesAreNoPatterns) {
  const ExchangeOptions options =
      decided_options({}, {.step = 0, .codec = "int8", .others = {{"a[1]*?", "fp32"}}, .why = {}});
  ASSERT_EQ(options.rules.size(), 1u);
  EXPECT_TRUE(fits_pattern("a[1]*?", options.rules[0].pattern));
  EXPECT_FALSE(fits_pattern("a1*?", options.rules[0].pattern));
  EXPECT_FALSE(fits_pattern("a[1]bc", options.rules[0].pattern));
}

TEST(AutoRecord, ARecordedRunIsRepeatedToTheBit) {
  std::vector<AutoDecision> decisions;
  std::vector<Tensors> means;
  const World world = changing();
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto:loss=any"});
    for (int i = 0; i < 90; ++i) {
      run.step();
      if (group.rank() == 0) means.push_back(run.values);
    }
    if (group.rank() == 0) decisions = run.exchange().decisions();
  });
  ASSERT_GE(decisions.size(), 2u);
  const std::string path = text_file(record_text(AllowedLoss::kAny, decisions));
  const World other{.link = [](uint64_t) { return LinkSpec{}; },
                    .compute = [](uint64_t, int) { return 1.0; }};
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, other, {.codec = "auto:loss=any,plan=" + path});
    for (int i = 0; i < 90; ++i) {
      run.step();
      ASSERT_TRUE(same_bits(run.values, means[static_cast<size_t>(i)])) << i;
    }
    EXPECT_EQ(run.probes, 0);
    EXPECT_TRUE(same(run.exchange().decisions(), decisions));
  });
  std::filesystem::remove(path);
}

// Where momentum acts, and which memory holds what is owed, follow from the loss that was allowed.
TEST(AutoRecord, IsFollowedWithTheLossThatItWasMadeWith) {
  const std::vector<AutoDecision> decisions = {{.step = 0, .codec = "fp32", .why = "first"}};
  const std::string text = record_text(AllowedLoss::kAny, decisions);
  EXPECT_EQ(recorded_loss(text), "any");
  EXPECT_EQ(recorded_loss(to_text(decisions)), "");
  EXPECT_TRUE(same(decisions_from(text).value(), decisions));
  const std::string path = text_file(text);
  const World world = changing();
  run_local(2, [&](Group& group) {
    EXPECT_THAT(
        error_of([&] { SimulatedRun(group, world, {.codec = "auto:plan=" + path}); }),
        AllOf(HasSubstr("recorded with loss=any"), HasSubstr("auto:loss=any,plan=" + path)));
  });
  std::filesystem::remove(path);
}

// What each of two ranks is told of a plan.
std::vector<std::string> told_of(const std::string& path) {
  const World world = changing();
  std::vector<std::string> told(2);
  run_local(2, [&](Group& group) {
    try {
      SimulatedRun run(group, world, {.codec = "auto:plan=" + path});
    } catch (const Error& error) {
      told[static_cast<size_t>(group.rank())] = error.what();
    }
  });
  return told;
}

TEST(AutoRecord, APlanThatCannotBeReadIsToldToAll) {
  const std::string folder = std::filesystem::temp_directory_path().string();
  for (const std::string& path : {std::string("/no/such/file"), folder})
    EXPECT_THAT(told_of(path), Each(HasSubstr("plan " + path + ": cannot be read")));
}

// Before the first step, whichever step it is that would fail.
TEST(AutoRecord, APlanThatCannotBeFollowedIsToldToAll) {
  const std::string title = "thinwire decisions 1\n";
  const std::vector<std::pair<std::string, std::string>> plans = {
      {"int8\n", "line 1: is not 'thinwire decisions 1'"},
      {title + "0\tint8\n500\ttopk:densty=0.1\n", "step 500: "},
      {title + "0\tauto\n", "step 0: 'auto' decides nothing"},
      {title + "0\tint8\tfp32\tno.weight\n", "step 0: there is no tensor 'no.weight'"},
      {title + "0\tint8\n4\tint8\tfp32\tfirst.weight\tfp16\tfirst.weight\n",
       "step 4: tensor 'first.weight' has two codecs"},
      {title + "0\tint8\n4\tfp32 @ library\n", "step 4: 'fp32 @ library': auto has no"},
      {title + "0\tint8\n4\tint8\tfp32 @ library\tfirst.weight\n", "step 4: 'fp32 @ library'"},
      // One memory holds what is owed, and the codec goes with another.
      {title + "0\ttopk:density=0.1\n4\tscalecom:density=0.1\n",
       "step 4: change: codec 'scalecom:density=0.1' goes with memory lowpass"},
      {title + "0\ttopk:density=0.1\n4\tsignum\n", "step 4: "},
      {title + "0\ttopk:density=0.1\n2\tfp16\n4\tscalecom:density=0.1\n", "step 4: change: "}};
  for (const auto& [text, why] : plans) {
    const std::string path = text_file(text);
    EXPECT_THAT(told_of(path), Each(AllOf(HasSubstr("plan " + path), HasSubstr(why)))) << text;
  }
  std::filesystem::remove(text_file(""));
}

// What was decided and what is owed go on; the link is probed anew.
TEST(AutoRecord, ARestartGoesOnAlike) {
  const World world = changing();
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto:loss=any"});
    run.steps(68);
    ASSERT_EQ(run.exchange().decisions().size(), 3u);  // after the change of the link, and a trial
    const auto store = std::make_shared<Store>();
    const std::vector<StateArrays> saved(2, run.store().save());
    ASSERT_TRUE(store->load(saved, group.rank(), 2));
    ExchangeOptions options{.codec = "auto:loss=any"};
    options.first_step = 68;
    SimulatedRun resumed(group, world, options, store);
    EXPECT_TRUE(same(resumed.exchange().decisions(), run.exchange().decisions()));
    EXPECT_TRUE(store->unclaimed().empty());
    for (int i = 0; i < 5; ++i) {
      run.step();
      resumed.step();
      ASSERT_TRUE(same_bits(run.values, resumed.values));
    }
  });
}

// fp16 alone has no memory; after topk it has that of topk, also after a restart.
TEST(AutoRecord, ARestartKeepsTheMemoryOfAnEarlierDecision) {
  const World world = changing();
  const std::string path = text_file("thinwire decisions 1\n0\ttopk:density=0.1\n3\tfp16\n");
  run_local(2, [&](Group& group) {
    ExchangeOptions options{.codec = "auto:loss=any,plan=" + path};
    SimulatedRun run(group, world, options);
    run.steps(5);
    const auto store = std::make_shared<Store>();
    const std::vector<StateArrays> saved(2, run.store().save());
    ASSERT_TRUE(store->load(saved, group.rank(), 2));
    options.first_step = 5;
    SimulatedRun resumed(group, world, options, store);
    EXPECT_TRUE(store->unclaimed().empty());
    run.step();
    resumed.step();
    EXPECT_TRUE(same_bits(run.values, resumed.values));
  });
  std::filesystem::remove(path);
}

// What a run of two ranks that may lose anything saved after 68 steps, when it had a sparse codec.
std::vector<StateArrays> saved_sparse() {
  std::vector<StateArrays> saved(2);
  const World world = changing();
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto:loss=any"});
    run.steps(68);
    EXPECT_NE(run.decision().codec, "fp32");
    saved[static_cast<size_t>(group.rank())] = run.store().save();
  });
  return saved;
}

// What is owed is sent, and then nothing is left.
void expect_fp32_after(const std::vector<StateArrays>& saved, int ranks, const std::string& codec,
                       const std::string& why) {
  const World world = changing();
  run_local(ranks, [&](Group& group) {
    const auto store = std::make_shared<Store>();
    ASSERT_TRUE(store->load(saved, group.rank(), ranks));
    ExchangeOptions options{.codec = codec};
    options.first_step = 68;
    SimulatedRun run(group, world, options, store);
    EXPECT_TRUE(store->unclaimed().empty());
    EXPECT_GT(store->owed_norm(), 0);
    EXPECT_EQ(run.decision().codec, "fp32");
    EXPECT_EQ(run.decision().step, 68u);
    EXPECT_THAT(run.decision().why, HasSubstr(why));
    EXPECT_GT(run.exchange().decisions().size(), 1u);  // earlier ones stay
    run.step();
    EXPECT_EQ(store->owed_norm(), 0);
    run.steps(40);
    EXPECT_EQ(run.decision().codec, "fp32");
  });
}

TEST(AutoRecord, ARankThatIsLeftAloneCompressesNoMore) {
  expect_fp32_after(saved_sparse(), 1, "auto:loss=any", "a single rank sends nothing");
}

TEST(AutoRecord, WhatMayNotBeLostAnyMoreEndsWithARestart) {
  expect_fp32_after(saved_sparse(), 2, "auto:loss=none", " loses more than auto:loss=none allows");
}

// The last decision goes on as long as it is allowed.
TEST(AutoRecord, WhatMayBeLostStillGoesOnAfterARestart) {
  const World world = changing();
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto"});
    run.steps(68);
    ASSERT_EQ(run.decision().codec, "int8");
    for (const std::string codec : {"auto", "auto:loss=any"}) {
      const auto store = std::make_shared<Store>();
      ASSERT_TRUE(store->load(std::vector<StateArrays>(2, run.store().save()), group.rank(), 2));
      ExchangeOptions options{.codec = codec};
      options.first_step = 68;
      const SimulatedRun resumed(group, world, options, store);
      EXPECT_TRUE(same({resumed.decision()}, {run.decision()}));
    }
  });
}

TEST(AutoRecord, ARunIsResumedWithTheDecisionsThatItFollowed) {
  const World world = changing();
  const std::string began = "thinwire decisions 1\n0\tfp32\n3\tint8\n9\tfp32\n";
  const std::string path = text_file(began);
  std::vector<StateArrays> saved(2);
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto:plan=" + path});
    run.steps(5);
    saved[static_cast<size_t>(group.rank())] = run.store().save();
  });
  const auto told = [&](const std::string& plan) {
    text_file(plan);
    std::vector<std::string> all(2);
    run_local(2, [&](Group& group) {
      const auto store = std::make_shared<Store>();
      ASSERT_TRUE(store->load(saved, group.rank(), 2));
      ExchangeOptions options{.codec = "auto:plan=" + path};
      options.first_step = 5;
      all[static_cast<size_t>(group.rank())] =
          error_of([&] { SimulatedRun(group, world, options, store).steps(6); });
    });
    return all;
  };
  EXPECT_THAT(told(began), Each(""));
  // Lines that repeat the one before decide nothing.
  EXPECT_THAT(told("thinwire decisions 1\n0\tfp32\n1\tfp32\n3\tint8\n4\tint8\n"), Each(""));
  // What comes later may change.
  EXPECT_THAT(told("thinwire decisions 1\n0\tfp32\n3\tint8\n7\tfp16\n"), Each(""));
  const std::string title = "thinwire decisions 1\n0\tfp32\n";
  EXPECT_THAT(told(title + "3\tfp16\n"),
              Each(AllOf(HasSubstr("plan " + path + " has 'fp16' from step 3 on where the run"),
                         HasSubstr("followed 'int8' from step 3 on"))));
  EXPECT_THAT(told(title + "2\tint8\n"), Each(HasSubstr("'int8' from step 2 on where the run")));
  EXPECT_THAT(told(title), Each(HasSubstr("has no other decision where the run")));
  EXPECT_THAT(told(title + "3\tint8\n4\tfp32\n"), Each(HasSubstr("followed no other decision")));
  EXPECT_THAT(told(title + "3\tint8\tfp32\tfirst.weight\n"),
              Each(HasSubstr("has 'int8', 'fp32' for first.weight from step 3 on")));
  std::filesystem::remove(path);
}

TEST(AutoRecord, APlanGoesBackWithTheStep) {
  const World world = changing();
  const std::string path = text_file("thinwire decisions 1\n0\tfp32\n3\tint8\n6\tfp16\n");
  run_local(2, [&](Group& group) {
    SimulatedRun run(group, world, {.codec = "auto:plan=" + path});
    run.steps(8);
    EXPECT_EQ(run.decision().codec, "fp16");
    run.exchange().set_step(4);
    run.step();
    EXPECT_EQ(run.decision().codec, "int8");
    run.exchange().set_step(1);
    for (const std::string codec : {"fp32", "fp32", "int8", "int8", "int8", "fp16"}) {
      run.step();
      EXPECT_EQ(run.decision().codec, codec);
    }
    EXPECT_EQ(run.exchange().decisions().size(), 3u);
  });
  std::filesystem::remove(path);
}

TEST(AutoRecord, SaysWhereItCannotWork) {
  const auto why = [](const ExchangeOptions& options) {
    return std::string(check_exchange(options).message());
  };
  EXPECT_EQ(why({.codec = "auto"}), "");
  EXPECT_THAT(why({.codec = "auto:loss=big"}), HasSubstr("none, small, any"));
  EXPECT_THAT(why({.codec = "auto", .method = "gather"}), HasSubstr("chooses the method, too"));
  EXPECT_THAT(why({.codec = "auto", .combine = "median"}), HasSubstr("combine = mean"));
  EXPECT_THAT(why({.codec = "auto", .inside = 2}), HasSubstr("hierarchies"));
  EXPECT_THAT(why({.codec = "auto", .columns = 2}), HasSubstr("columns = 1"));
  ExchangeOptions held{.codec = "auto"};
  held.hold = true;
  EXPECT_THAT(why(held), HasSubstr("hold = false"));
  EXPECT_THAT(why({.codec = "auto", .results = Results::kShard}), HasSubstr("full results"));
  EXPECT_THAT(why({.codec = "auto", .grouping = Grouping::kModel}), HasSubstr("grouping tensor"));
  EXPECT_THAT(why({.codec = "fp32", .rules = {{.pattern = "a*", .codec = "auto"}}}),
              HasSubstr("rule 'a*'"));
  EXPECT_THAT(
      why({.codec = "auto", .rules = {{.pattern = "a*", .codec = "fp32", .method = "library"}}}),
      HasSubstr("which rule 'a*' has"));
  EXPECT_THAT(why({.codec = "auto", .rules = {{.pattern = "a*", .codec = "fp32 | 9steps: int8"}}}),
              HasSubstr("predicts no schedules, and rule 'a*'"));
  run_local(2, [](Group& group) {
    Store store;
    try {
      make_exchange(group, store, simulated_model(), {.codec = "auto"});
      ADD_FAILURE() << "was made";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("make_auto_exchange"));
    }
  });
}

}  // namespace
}  // namespace thinwire::testing
