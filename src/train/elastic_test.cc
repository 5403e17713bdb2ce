// Tests of runs that lose workers: losses in every phase, weights and samples after them, and
// debts.
// SPDX-License-Identifier: Apache-2.0
#include "train/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <string>

#include "train/checkpoint.h"
#include "train/elastic_expectations.h"
#include "train/elastic_toys.h"
#include "train/temporary_folder.h"

namespace thinwire {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(Elastic, WithoutLossesItIsTheSameRun) {
  for (const char* codec : {"fp32", "topk:density=0.1"}) {
    ElasticToy run = usual({{"exchange.codec", codec}});
    run.toy.norm = true;
    const auto ends = run_elastic(run);
    const auto plain = run_toy(3, run.toy);
    EXPECT_TRUE(same_bits(expect_survivors(ends, {}, codec), plain[0].weights)) << codec;
    EXPECT_EQ(ends[1].result.summary.weights_xxh3, plain[0].summary.weights_xxh3);
    EXPECT_THAT(ends[0].result.losses, plain[0].losses);
    EXPECT_THAT(ends[1].result.losses, IsEmpty()) << "the first worker speaks for all";
  }
}

// The step that it broke off is repeated by the others with all its samples: the run is that of any
// number of workers.
TEST(Elastic, TheOthersGoOnWithoutAWorkerThatFails) {
  const TemporaryFolder folder;
  ElasticToy run = usual({{"optimizer.momentum", "0.9"}});
  const auto undisturbed = run_toy(1, run.toy);
  for (const int victim : {0, 1, 2}) {
    run.toy.places.out = (folder / std::to_string(victim)).string();
    run.fates = {{victim, {.after = 7}}};
    const auto ends = run_elastic(run);
    const auto weights = expect_survivors(ends, {victim}, std::to_string(victim));
    EXPECT_LT(distance(weights, undisturbed[0].weights), 1e-5);
    EXPECT_EQ(ends[static_cast<size_t>(victim)].error, "the disk is full");
    const WorkerEnd& first = ends[victim == 0 ? 1 : 0];
    EXPECT_THAT(first.result.notes,
                Contains(AllOf(HasSubstr("worker " + std::to_string(victim) + " is lost"),
                               HasSubstr("failed: the disk is full"))));
    EXPECT_THAT(first.result.notes, Contains("2 workers go on after step 7"));
    EXPECT_THAT(first.result.summary.lost_workers, ElementsAre(victim));
    EXPECT_EQ(first.result.summary.world_size, 2);

    const auto lines = metrics_of(run.toy.places.out);
    expect_every_step_once(lines, 20);
    for (const auto& line : lines) {
      EXPECT_EQ(line.contains("lost"), line["step"] == 8 && line.contains("loss")) << line;
      if (!line.contains("lost")) continue;
      EXPECT_EQ(line["lost"][0]["rank"], victim);
      EXPECT_EQ(line["ranks"], 2);
    }
    EXPECT_THAT(summary_of(run.toy.places.out)["lost_workers"], ElementsAre(victim));
    const auto ranks = std::filesystem::path(run.toy.places.out) / "ranks";
    EXPECT_TRUE(std::filesystem::exists(ranks / "1.json"));
    EXPECT_FALSE(std::filesystem::exists(ranks / "2.json"));
  }
}

// In the first message of a step and in all that follow it: gradients, the agreement, tests,
// checkpoints, the end.
TEST(Elastic, AWorkerMayDieAtAnyTransfer) {
  const TemporaryFolder folder;
  ElasticToy run = usual({{"train.epochs", "0.8"},
                          {"train.evaluate_every", "0.2"},
                          {"train.checkpoint_every", "0.4"}});
  const auto undisturbed = run_toy(1, run.toy);
  run.toy.places.out = (folder / "whole").string();
  run.fates = {{2, {.after = 1, .transfers = kEver}}};
  const int transfers = run_elastic(run)[2].transfers;
  ASSERT_GT(transfers, 60);
  int lost = 0;
  for (int at = 0; at < transfers; at += 3 + at % 4) {
    run.toy.places.out = (folder / std::to_string(at)).string();
    run.fates = {{2, {.after = 1, .transfers = at, .silent = at % 24 == 5}}};
    const auto ends = run_elastic(run);
    for (const int i : {0, 1}) {
      const WorkerEnd& end = ends[static_cast<size_t>(i)];
      ASSERT_TRUE(end.ended_well) << at << ": " << end.error;
      EXPECT_LT(distance(end.result.weights, undisturbed[0].weights), 1e-5) << at;
    }
    EXPECT_TRUE(same_bits(ends[0].result.weights, ends[1].result.weights)) << at;
    EXPECT_FALSE(ends[2].ended_well) << at;
    lost += !ends[0].result.summary.lost_workers.empty();
    expect_every_step_once(metrics_of(run.toy.places.out), 4);
    const auto checkpoints = list_checkpoints(run.toy.places.out);
    ASSERT_FALSE(checkpoints.empty());
    EXPECT_THAT(checkpoints.back().string(), HasSubstr("checkpoint-0000000004"));
  }
  EXPECT_GT(lost, 10);
}

TEST(Elastic, TwoLossesLeaveOneWorker) {
  const TemporaryFolder folder;
  ElasticToy run = usual({{"optimizer.name", "adam"}, {"optimizer.lr", "0.01"}});
  run.toy.settings.emplace_back("train.checkpoint_every", "1");
  const auto undisturbed = run_toy(1, run.toy);
  run.toy.places.out = (folder / "run").string();
  run.fates = {{0, {.after = 6}}, {2, {.after = 12}}};
  const auto ends = run_elastic(run);
  EXPECT_LT(distance(expect_survivors(ends, {0, 2}, ""), undisturbed[0].weights), 1e-4);
  EXPECT_THAT(ends[1].result.summary.lost_workers, ElementsAre(0, 2));
  EXPECT_EQ(ends[1].result.summary.world_size, 1);
  expect_every_step_once(metrics_of(folder / "run"), 20);
  EXPECT_EQ(summary_of(folder / "run")["world_size"], 1);
}

TEST(Elastic, TwoMayDieInOneStep) {
  ElasticToy run = usual();
  run.workers = 4;
  const auto undisturbed = run_toy(1, run.toy);
  run.fates = {{1, {.after = 5, .transfers = 2}}, {3, {.after = 5, .transfers = 5}}};
  const auto ends = run_elastic(run);
  EXPECT_LT(distance(expect_survivors(ends, {1, 3}, ""), undisturbed[0].weights), 1e-5);
  EXPECT_THAT(ends[0].result.summary.lost_workers, UnorderedElementsAre(1, 3));
}

TEST(Elastic, TheLastOneThatFailsEndsTheRun) {
  ElasticToy run = usual();
  run.workers = 2;
  run.fates = {{0, {.after = 3}}, {1, {.after = 6}}};
  const auto ends = run_elastic(run);
  EXPECT_TRUE(ends[0].survived);
  EXPECT_FALSE(ends[1].survived);
  EXPECT_EQ(ends[1].error, "the disk is full");
}

// It comes back to a group that has gone on.
TEST(Elastic, WhoIsSilentForLongIsLeftOut) {
  ElasticToy run = usual({{"exchange.deadline_seconds", "1.5"}});
  run.toy.change = [](int number, Task& task) {
    if (number != 1) return;
    task.loss = [pass = 0](const torch::Tensor& outputs, const torch::Tensor& targets) mutable {
      if (outputs.requires_grad() && pass++ == 4)
        std::this_thread::sleep_for(std::chrono::seconds(6));
      return torch::nn::functional::cross_entropy(outputs, targets);
    };
  };
  const auto ends = run_elastic(run);
  expect_survivors(ends, {1}, "");
  EXPECT_THAT(ends[1].error, HasSubstr("without worker 1"));
}

// It comes to every meeting, and is not lost: the test is repeated, but not for ever. Others wait 3
// s for it, and 3.75 s at the meeting, so that a busy machine has more than a second to spare on
// either side.
TEST(Elastic, WhoNeedsALittleMoreThanTheDeadlineEachTimeEndsTheRun) {
  for (const int slow : {2, kEver}) {
    ElasticToy run = usual({{"exchange.deadline_seconds", "3"}, {"train.evaluate_batch", "18"}});
    std::atomic<int> tests{0};
    run.toy.change = [&](int number, Task& task) {
      if (number != 0) return;
      task.loss = [&](const torch::Tensor& outputs, const torch::Tensor& targets) {
        if (!outputs.requires_grad() && tests++ < slow)
          std::this_thread::sleep_for(std::chrono::milliseconds(4500));
        return torch::nn::functional::cross_entropy(outputs, targets);
      };
    };
    const auto ends = run_elastic(run);
    if (slow == 2) {
      expect_survivors(ends, {}, "");
      continue;
    }
    EXPECT_EQ(tests, 4);
    for (const WorkerEnd& end : ends) {
      EXPECT_FALSE(end.ended_well || end.survived);
      EXPECT_THAT(end.error, AllOf(HasSubstr("the test after step 5 failed again and again"),
                                   HasSubstr("exchange.deadline_seconds, raise that")));
    }
  }
}

TEST(Elastic, WhoIsLateAtTheBeginningEndsTheRunByName) {
  ElasticToy run = usual({{"exchange.deadline_seconds", "0.4"}});
  run.before_meeting = [](int worker, int call) {
    if (worker == 1 && call == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  };
  for (const WorkerEnd& end : run_elastic(run)) {
    EXPECT_FALSE(end.ended_well);
    EXPECT_THAT(end.error, HasSubstr("all 3 workers, but 1 left or did not come in time"));
  }
}

// As when those that are left do not come together at once.
TEST(Elastic, EveryAttemptToGoOnIsNoted) {
  ElasticToy run = usual();
  run.fates = {{2, {.after = 7}}};
  run.before_meeting = [](int worker, int call) {
    if (worker == 1 && (call == 1 || call == 2))
      throw Error(ErrorCode::kPeerLost, "members: those that are left did not come together");
  };
  const auto ends = run_elastic(run);
  expect_survivors(ends, {2}, "");
  for (const char* attempt : {"attempt 1 of 20", "attempt 2 of 20"})
    EXPECT_THAT(ends[1].result.notes, Contains(AllOf(HasSubstr("worker 1: "), HasSubstr(attempt),
                                                     HasSubstr("did not come together"))));
}

// It may be cut off from workers that go on.
TEST(Elastic, WhoCannotKnowWhetherOthersGoOnEndsAtOnce) {
  ElasticToy run = usual();
  run.fates = {{2, {.after = 7}}};
  int calls = 0;
  run.before_meeting = [&](int worker, int call) {
    if (worker != 1 || call == 0) return;
    ++calls;
    throw SurvivedError(ErrorCode::kPeerLost, "members: 2 of 3 workers are silent");
  };
  const auto ends = run_elastic(run);
  EXPECT_TRUE(ends[0].ended_well) << ends[0].error;
  EXPECT_TRUE(ends[1].survived);
  EXPECT_THAT(ends[1].error, HasSubstr("are silent"));
  EXPECT_EQ(calls, 1);
}

class ElasticCodecs : public ::testing::TestWithParam<Settings> {};
INSTANTIATE_TEST_SUITE_P(
    Codecs, ElasticCodecs,
    ::testing::Values(
        Settings{{"exchange.codec", "topk:density=0.1"}},
        Settings{{"exchange.codec", "topk:density=0.1"}, {"optimizer.momentum", "0.9"}},
        Settings{{"exchange.codec", "topk:density=0.2"}, {"exchange.feedback", "ef21"}},
        Settings{{"exchange.codec", "powersgd:rank=1"}},
        Settings{{"exchange.codec", "onebit"}, {"exchange.method", "scatter-reduce"}},
        Settings{{"exchange.codec", "int4"}, {"exchange.feedback", "loco"}},
        Settings{{"exchange.codec", "topk:density=accordion(0.2;0.05)"}},
        Settings{{"exchange.codec", "topk:density=0.1"}, {"exchange.grouping", "global"}}));

// One is lost in the middle of a step, another one comes. The loss goes on falling.
TEST_P(ElasticCodecs, WeightsStayEqualAndDebtsAreCounted) {
  const TemporaryFolder folder;
  ElasticToy run = usual(GetParam());
  run.toy.settings.insert(run.toy.settings.end(),
                          {{"train.epochs", "4"}, {"train.checkpoint_every", "1"}});
  run.toy.norm = true;
  run.toy.places.out = (folder / "run").string();
  run.newcomers = 1;
  run.fates = {{2, {.after = 11, .transfers = 2}}};
  const auto ends = run_elastic(run);
  expect_survivors(ends, {2}, GetParam()[0].second);
  const RunSummary& summary = ends[0].result.summary;
  EXPECT_THAT(summary.lost_workers, ElementsAre(2));
  EXPECT_THAT(summary.joined_workers, ElementsAre(3));

  double owed = -1;
  for (const auto& line : metrics_of(folder / "run"))
    if (line.contains("lost")) owed = line["lost"][0]["owed"].get<double>();
  EXPECT_DOUBLE_EQ(owed, summary.lost_debt);
  const bool owes = GetParam().size() < 2 || GetParam()[1].second != "ef21";
  EXPECT_EQ(owed > 0, owes);
  const auto& tests = ends[0].result.tests;
  ASSERT_EQ(tests.size(), 4u);
  EXPECT_LT(tests[3].loss, tests[1].loss) << "the loss did not go on falling";
}

// What c owed is what its own exchange says of it before the step in which it is lost.
TEST(Elastic, TheDebtIsThatOfTheLastStepThatBegan) {
  const Settings settings = {
      {"exchange.codec", "topk:density=0.1"}, {"train.epochs", "4"}, {"train.evaluate_every", "0"}};
  ElasticToy run;
  run.toy.settings = settings;
  run.fates = {{2, {.after = 11}}};
  const auto ends = run_elastic(run);
  expect_survivors(ends, {2}, "");
  // An undisturbed run to that step leaves a checkpoint, whose state has what it owes then. What it
  // told came a step before.
  const TemporaryFolder folder;
  ElasticToy whole;
  whole.toy.settings = settings;
  whole.toy.stop_after = 10;
  whole.toy.places.out = (folder / "run").string();
  run_elastic(whole);
  const auto checkpoints = list_checkpoints(folder / "run");
  ASSERT_THAT(checkpoints.back().string(), HasSubstr("checkpoint-0000000010"));
  double owed = -1;
  const auto groups = make_local_groups(3);
  std::vector<std::jthread> ranks;
  for (const auto& group : groups)
    ranks.emplace_back([&] {
      const Checkpoint saved = load_checkpoint(*group, checkpoints.back());
      double squares = 0;
      for (const StateArray& array : saved.ranks.at(0)) {
        if (!array.name.ends_with("/residual")) continue;
        std::vector<float> values(array.data.size() / sizeof(float));
        copy_state({array}, array.name, std::span(values)).or_throw();
        for (const float value : values) squares += static_cast<double>(value) * value;
      }
      if (group->rank() == 2) owed = std::sqrt(squares);
    });
  ranks.clear();
  EXPECT_GT(owed, 0);
  EXPECT_NEAR(ends[0].result.summary.lost_debt, owed, 1e-6 * owed);
}

// A checkpoint of two workers of a run that three began.
TEST(Elastic, CheckpointsAfterALossAreResumedByAnyNumber) {
  const TemporaryFolder folder;
  for (const int resumed_by : {1, 2, 3}) {
    ElasticToy run = usual({{"exchange.codec", "topk:density=0.1"}});
    run.toy.places.out = (folder / std::to_string(resumed_by)).string();
    run.toy.stop_after = 12;
    run.fates = {{1, {.after = 6, .transfers = 1}}};
    const auto stopped = run_elastic(run);
    ASSERT_TRUE(stopped[0].ended_well && stopped[2].ended_well);
    EXPECT_FALSE(stopped[0].result.summary.finished);
    ElasticToy again = usual({{"exchange.codec", "topk:density=0.1"}});
    again.toy.places.out = again.toy.places.resume = run.toy.places.out;
    again.workers = resumed_by;
    const auto ends = run_elastic(again);
    expect_survivors(ends, {}, std::to_string(resumed_by));
    EXPECT_THAT(ends[0].result.notes, Contains("resumed at step 12"));
    const auto resized = HasSubstr("saved by 2 ranks, resumed by " + std::to_string(resumed_by));
    if (resumed_by == 2)
      EXPECT_THAT(ends[0].result.notes, Not(Contains(resized)));
    else
      EXPECT_THAT(ends[0].result.notes, Contains(resized));
    expect_every_step_once(metrics_of(run.toy.places.out), 20);
    EXPECT_GT(summary_of(run.toy.places.out)["lost_debt"].get<double>(), 0)
        << "what was lost before counts";
    if (resumed_by == 2) {  // a run without run.elastic goes on from it, too
      const TemporaryFolder other;
      ToyOptions plain = again.toy;
      plain.places.out = (other / "run").string();
      const auto from = list_checkpoints(run.toy.places.out);
      plain.places.resume = from.back().string();
      EXPECT_TRUE(run_toy(2, plain)[0].summary.finished);
    }
  }
}

// Some have ended the only test, and others have not. Who dies before all have begun ends the run
// of those that have not.
TEST(Elastic, AWorkerMayDieInTheTestOfARunWithNothingLeftToDo) {
  const TemporaryFolder folder;
  ElasticToy run = usual({{"train.epochs", "0.4"}});
  run.toy.places.out = (folder / "run").string();
  for (const WorkerEnd& end : run_elastic(run)) ASSERT_TRUE(end.ended_well) << end.error;
  const std::string saved = list_checkpoints(folder / "run").back().string();
  run.toy.places.resume = saved;
  run.toy.places.out = (folder / "whole").string();
  run.fates = {{2, {.after = -1, .transfers = kEver}}};
  const int transfers = run_elastic(run)[2].transfers;
  bool begun = false;
  for (int at = transfers * 2 / 3; at < transfers; ++at) {
    SCOPED_TRACE(at);
    run.toy.places.out = (folder / std::to_string(at)).string();
    run.fates = {{2, {.after = -1, .transfers = at, .silent = true}}};
    const auto ends = run_elastic(run);
    begun = begun || (ends[0].ended_well && ends[1].ended_well);
    if (!begun) continue;
    for (const size_t i : {0, 1}) EXPECT_TRUE(ends[i].ended_well) << i << ": " << ends[i].error;
  }
  EXPECT_TRUE(begun);
}

TEST(Elastic, WhatItCannotDoIsRefused) {
  const std::vector<std::pair<Settings, std::string>> refused = {
      {{{"sync.method", "average:tau=4"}}, "sync.method"},
      {{{"pipeline.stages", "2"}}, "pipeline.stages"},
      {{{"exchange.inside", "2"}}, "exchange.inside"},
      {{{"exchange.combine", "median"}}, "exchange.combine"},
      {{{"exchange.codec", "auto:loss=none"}}, "exchange.codec"},
      {{{"exchange.method", "library"}}, "exchange.method"},
      {{{"exchange.codec", "topk"}, {"exchange.flush", "measure"}}, "exchange.flush"},
      {{{"checkpoint.compress", "quantised:tolerance=0.01"}, {"data.hold_out", "10"}},
       "checkpoint.compress"},
      {{{"data.shards", "dirichlet:alpha=1"}}, "data.shards"},
      {{{"run.slow", "1;2"}}, "run.slow"},
      {{{"run.attack", "sign_flip:ranks=1"}}, "run.attack"},
      {{{"run.record_every", "3"}}, "run.record_every"}};
  for (const auto& [settings, key] : refused) {
    Settings all = settings;
    all.emplace_back("run.elastic", "true");
    const auto faults = find_faults(toy_recipe(all).options);
    EXPECT_THAT(faults, Contains(::testing::Field(&RecipeFault::key, "run.elastic"))) << key;
    for (const RecipeFault& fault : faults) {
      if (fault.key != "run.elastic") continue;
      EXPECT_THAT(fault.status.message(), HasSubstr(key));
    }
    EXPECT_THAT(find_faults(toy_recipe(settings).options),
                Not(Contains(::testing::Field(&RecipeFault::key, "run.elastic"))));
  }
  EXPECT_THAT(find_faults(toy_recipe({{"run.device", "cuda"}, {"run.elastic", "true"}}).options),
              Contains(AllOf(::testing::Field(&RecipeFault::key, "run.device"),
                             ::testing::ResultOf(
                                 [](const RecipeFault& fault) { return fault.status.message(); },
                                 HasSubstr("run.elastic")))));
  EXPECT_THAT(find_faults(toy_recipe({{"run.replacements", "2"}}).options),
              ElementsAre(::testing::Field(&RecipeFault::key, "run.replacements")));
  EXPECT_THAT(find_faults(toy_recipe({{"run.replacements", "2"}, {"run.elastic", "true"}}).options),
              IsEmpty());
}

TEST(Elastic, ItNeedsMembersAndMembersNeedIt) {
  ToyOptions toy;
  toy.settings = {{"run.elastic", "true"}};
  EXPECT_THROW(run_toy(1, toy), Error);
  MeetingPlace place(1);
  const auto members = place.enter();
  EXPECT_THROW(train_toy_in(*members, 0, {}, true), Error);
}

}  // namespace
}  // namespace thinwire
