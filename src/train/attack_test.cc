// Attacks: what they make of gradients, and that they break the mean and not the rules.
// SPDX-License-Identifier: Apache-2.0
#include "train/attack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Gradient = std::vector<float>;

Options recipe_with(const std::string& attack) {
  return toy_recipe({{"run.attack", attack}}).options;
}

// What each of five workers sends of its gradient (r, r * r) in step `step`; the bias has none.
std::vector<Gradient> sent(const std::string& attack, uint64_t step = 7) {
  std::vector<Gradient> by_rank(5);
  run_local(5, [&](Group& group) {
    torch::nn::Linear module(2, 1);
    const auto r = static_cast<float>(group.rank());
    module->weight.mutable_grad() = torch::tensor({{r, r * r}});
    Store store;
    Attack(recipe_with(attack), group, store).change(step, *module);
    const torch::Tensor& given = module->weight.grad();
    by_rank[static_cast<size_t>(group.rank())] = {given[0][0].item<float>(),
                                                  given[0][1].item<float>()};
  });
  return by_rank;
}

TEST(Attack, ChangesTheGradientsOfTheLastWorkers) {
  const Gradient zero{0, 0}, one{1, 1}, two{2, 4}, three{3, 9}, four{4, 16};
  EXPECT_THAT(sent(""), ElementsAre(zero, one, two, three, four));
  EXPECT_THAT(sent("sign_flip:ranks=2"),
              ElementsAre(zero, one, two, Gradient{-3, -9}, Gradient{-4, -16}));
  EXPECT_THAT(sent("sign_flip:scale=10"), ElementsAre(zero, one, two, three, Gradient{-40, -160}));
  EXPECT_THAT(sent("zeros"), ElementsAre(zero, one, two, three, zero));
  EXPECT_THAT(sent("mimic:ranks=2,of=1"), ElementsAre(zero, one, two, one, one));
  EXPECT_THAT(sent("ipm:ranks=2,epsilon=3"),
              ElementsAre(zero, one, two, Gradient{-3, -5}, Gradient{-3, -5}));
  EXPECT_THAT(sent("nan")[4], Each(::testing::IsNan()));
  EXPECT_THAT(sent("label_flip:ranks=4"), ElementsAre(zero, one, two, three, four));
}

// Of three attacks the last has the highest ranks; the honest ones are those that none has.
TEST(Attack, SeveralAttackAtOnce) {
  EXPECT_THAT(sent("zeros and ipm:epsilon=2 and sign_flip"),
              ElementsAre(Gradient{0, 0}, Gradient{1, 1}, Gradient{0, 0}, Gradient{-1, -1},
                          Gradient{-4, -16}));
  EXPECT_THAT(
      sent("label_flip and mimic:of=1 and silence"),
      ElementsAre(Gradient{0, 0}, Gradient{1, 1}, Gradient{2, 4}, Gradient{1, 1}, Gradient{4, 16}));
  run_local(4, [](Group& group) {
    const Options recipe = recipe_with("silence:ranks=2 and nan");
    EXPECT_EQ(attacking_group(recipe, group) != nullptr, group.rank() == 1 || group.rank() == 2);
  });
}

TEST(Attack, ReplayRepeatsTheFirstGradient) {
  run_local(2, [](Group& group) {
    Store store;
    Attack attack(recipe_with("replay"), group, store);
    torch::nn::Linear module(1, 1);
    for (uint64_t step = 3; step < 6; ++step) {
      const auto value = static_cast<float>(step);
      module->weight.mutable_grad() = torch::tensor({{value}});
      attack.change(step, *module);
      EXPECT_EQ(module->weight.grad().item<float>(), group.rank() == 1 ? 3 : value);
    }
  });
}

// The honest (0, 0), (1, 1), (2, 4): means 1 and 5/3, variances 2/3 and 26/9.
TEST(Attack, ALittleIsMeanMinusDeviations) {
  const Gradient given = sent("alie:ranks=2,z=2")[3];
  EXPECT_NEAR(given[0], 1 - 2 * std::sqrt(2.0 / 3), 1e-6);
  EXPECT_NEAR(given[1], 5.0 / 3 - 2 * std::sqrt(26.0 / 9), 1e-6);
}

TEST(Attack, NoiseIsThatOfWorkerAndStep) {
  const auto first = sent("noise:ranks=2"), next = sent("noise:ranks=2", 8);
  EXPECT_EQ(first, sent("noise:ranks=2"));
  EXPECT_NE(first[4], first[3]);
  EXPECT_NE(first[4], next[4]);
  double square_sum = 0;
  for (uint64_t step = 0; step < 200; ++step) {
    const auto all = sent("noise:std=3", step);
    for (const float x : all[4]) square_sum += x * x;
  }
  EXPECT_NEAR(square_sum / 400, 9, 2);
}

TEST(Attack, AttackersLearnTheLastLabelForTheFirst) {
  run_local(3, [](Group& group) {
    Store store;
    const Attack attack(recipe_with("label_flip"), group, store);
    EXPECT_FALSE(attack.holds_gradients());
    const torch::Tensor targets = torch::tensor({0, 3, 9}, torch::kInt64);
    const torch::Tensor given = attack.labels(targets, torch::zeros({3, 10}));
    EXPECT_TRUE(given.equal(group.rank() == 2 ? 9 - targets : targets));
  });
}

std::string fault_of(const Settings& settings) {
  const auto faults = find_faults(parse_options("test", recipe_keys(), settings).value());
  return faults.empty() ? "" : faults[0].key + ": " + faults[0].status.message();
}

TEST(Attack, MistakesAreNamed) {
  EXPECT_EQ(fault_of({{"run.attack", "alie:ranks=2"}}), "");
  EXPECT_THAT(fault_of({{"run.attack", "ali"}}),
              AllOf(HasSubstr("run.attack: "), HasSubstr("did you mean 'alie'?")));
  EXPECT_THAT(fault_of({{"run.attack", "alie:f=2"}}), HasSubstr("attack 'alie'"));
  EXPECT_EQ(fault_of({{"run.attack", "alie:ranks=2 and nan"}}), "");
  EXPECT_THAT(fault_of({{"run.attack", "nan and ali"}}), HasSubstr("did you mean 'alie'?"));
  EXPECT_THAT(fault_of({{"run.attack", "nan and "}}), HasSubstr("the name is missing"));
  EXPECT_THAT(fault_of({{"run.attack", "nan"}, {"sync.method", "average"}}),
              HasSubstr("run.attack: "));
  EXPECT_THAT(fault_of({{"run.attack", "nan"}, {"pipeline.stages", "2"}}),
              HasSubstr("not for pipelines"));
  EXPECT_THAT(fault_of({{"exchange.combine", "medain"}}),
              AllOf(HasSubstr("exchange.combine: "), HasSubstr("did you mean 'median'?")));
  EXPECT_THAT(fault_of({{"exchange.combine", "median"}, {"exchange.method", "dense"}}),
              AllOf(HasSubstr("exchange.combine: "), HasSubstr("by mean alone")));
  EXPECT_THAT(fault_of({{"exchange.combine", "median"}, {"sync.method", "average"}}),
              HasSubstr("exchange.combine: "));
  EXPECT_THAT(fault_of({{"exchange.combine", "median"}, {"pipeline.stages", "2"}}),
              HasSubstr("exchange.combine: "));
  const auto why = [](const std::string& attack) {
    try {
      run_toy(3, {.settings = {{"run.attack", attack}}});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(why("nan:ranks=3"),
              HasSubstr("the run has 3 workers, and one at least must be honest"));
  EXPECT_THAT(why("mimic:of=2"), HasSubstr("one of the 2 honest ones, 0 to 1"));
}

TEST(Attack, ValuesThatAreNotFiniteEndTheRun) {
  try {
    run_toy(3, {.settings = {{"run.attack", "nan"},
                             {"exchange.combine", "median"},
                             {"exchange.max_skipped", "2"}}});
    ADD_FAILURE() << "NaN is not taken for a value";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 2"));
  }
}

// The test error after 60 steps of nine workers.
double error_with(const std::string& attack, const std::string& combine,
                  const std::string& codec = "fp32") {
  const auto results = run_toy(9, {.settings = {{"run.attack", attack},
                                                {"exchange.combine", combine},
                                                {"exchange.codec", codec},
                                                {"train.batch", "180"},
                                                {"train.epochs", "15"},
                                                {"train.evaluate_every", "0"},
                                                {"optimizer.lr", "0.5"},
                                                {"optimizer.momentum", "0.9"},
                                                {"exchange.max_skipped", "0"}},
                                   .samples = 720});
  return results[0].summary.final_test_error;
}

TEST(Attack, BreaksTheMeanAndNotTheRules) {
  const double clean = error_with("", "mean");
  EXPECT_LT(clean, 0.15);
  for (const char* attack :
       {"sign_flip:ranks=2,scale=10", "ipm:ranks=2,epsilon=10", "noise:ranks=2,std=20"}) {
    EXPECT_GT(error_with(attack, "mean"), clean + 0.2) << attack;
    for (const char* rule : {"median", "trimmed_mean:f=2", "mean_around_median:f=2",
                             "multi_krum:f=2", "mda:f=2", "geometric_median"})
      EXPECT_LT(error_with(attack, rule), clean + 0.1) << attack << ", " << rule;
  }
  EXPECT_LT(error_with("sign_flip:ranks=2,scale=10", "trimmed_mean:f=2", "int8"), clean + 0.1);
}

// The log names the attackers, whose values no result has.
TEST(Attack, WhatIsDoneToMessagesIsNamed) {
  const std::pair<std::string, std::string> attacks[] = {{"equivocation:ranks=2", "equivocation"},
                                                         {"silence:ranks=2", "silence"}};
  for (const auto& [attack, why] : attacks) {
    const auto results = run_toy(5, {.settings = {{"run.attack", attack},
                                                  {"exchange.combine", "trimmed_mean:f=2"},
                                                  {"exchange.method", "gather"},
                                                  {"exchange.deadline_seconds", "3"},
                                                  {"train.batch", "100"},
                                                  {"train.epochs", "8"},
                                                  {"train.evaluate_every", "0"}},
                                     .samples = 720});
    EXPECT_EQ(results[0].summary.skipped_steps, 0u);
    EXPECT_THAT(
        results[0].notes,
        ::testing::IsSupersetOf(
            {"step 0: rank 3 was left out for " + why, "step 0: rank 4 was left out for " + why,
             "rank 3 is left out constantly: of 50 steps in a row, now for " + why,
             "rank 4 is left out constantly: of 50 steps in a row, now for " + why}))
        << attack;
  }
}

}  // namespace
}  // namespace thinwire
