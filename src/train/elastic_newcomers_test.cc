// Tests of workers that join a run: what they take over, and what happens if they or others die
// meanwhile.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>

#include "train/checkpoint.h"
#include "train/elastic.h"
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

TEST(ElasticNewcomers, ANewcomerTakesWeightsAndOptimiserAtACheckpoint) {
  const TemporaryFolder folder;
  for (const char* optimizer : {"sgd", "adam"}) {
    ElasticToy run = usual(
        {{"optimizer.name", optimizer}, {"optimizer.lr", "0.02"}, {"train.checkpoint_every", "1"}});
    if (optimizer == std::string("sgd")) run.toy.settings.emplace_back("optimizer.momentum", "0.9");
    const auto undisturbed = run_toy(1, run.toy);
    run.toy.places.out = (folder / optimizer).string();
    run.newcomers = 1;
    run.fates = {{1, {.after = 2}}};
    const auto ends = run_elastic(run);
    const auto weights = expect_survivors(ends, {1}, optimizer);
    EXPECT_LT(distance(weights, undisturbed[0].weights), 1e-4);
    EXPECT_THAT(ends[0].result.summary.joined_workers, ElementsAre(3));
    EXPECT_THAT(ends[3].result.summary.joined_workers, ElementsAre(3));
    EXPECT_EQ(ends[3].result.summary.world_size, 3);
    EXPECT_THAT(ends[0].result.notes, Contains("worker 3 joined"));
    const auto lines = metrics_of(run.toy.places.out);
    expect_every_step_once(lines, 20);
    std::vector<uint64_t> joined;
    for (const auto& line : lines)
      if (line.contains("joined")) joined.push_back(line["step"].get<uint64_t>());
    EXPECT_THAT(joined, ElementsAre(6)) << "with the first step after the checkpoint";
    EXPECT_EQ(list_checkpoints(run.toy.places.out).size(), 2u);
  }
}

// No error of a step tells of it.
TEST(ElasticNewcomers, WhoLeavesBeforeNewcomersAreAdmittedIsLostForAReason) {
  ElasticToy run = usual({{"train.checkpoint_every", "1"}});
  run.newcomers = 1;
  run.before_meeting = [](int worker, int call) {
    if (worker != 2 || call != 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others wait for it
    throw std::runtime_error("the disk is full");
  };
  const auto ends = run_elastic(run);
  expect_survivors(ends, {2}, "");
  EXPECT_THAT(ends[0].result.notes,
              Contains(HasSubstr("worker 2 is lost (it left before the meeting")));
  EXPECT_THAT(ends[0].result.summary.joined_workers, ElementsAre(3));
}

// Nobody of those that began is left at the end.
TEST(ElasticNewcomers, NewcomersGoOnWithoutThoseThatBegan) {
  const TemporaryFolder folder;
  ElasticToy run = usual({{"train.checkpoint_every", "1"}});
  const auto undisturbed = run_toy(1, run.toy);
  run.toy.places.out = (folder / "run").string();
  run.workers = 2;
  run.newcomers = 2;
  run.fates = {{0, {.after = 8}}, {1, {.after = 13, .transfers = 3}}};
  const auto ends = run_elastic(run);
  EXPECT_LT(distance(expect_survivors(ends, {0, 1}, ""), undisturbed[0].weights), 1e-5);
  EXPECT_THAT(ends[2].result.summary.lost_workers, ElementsAre(0, 1));
  expect_every_step_once(metrics_of(folder / "run"), 20);
  EXPECT_THAT(ends[2].result.summary.joined_workers, UnorderedElementsAre(2, 3));
}

TEST(ElasticNewcomers, ANewcomerMayDieWhileItJoins) {
  for (int at = 0; at < 60; at += 3) {
    ElasticToy run = usual({{"train.checkpoint_every", "1"}});
    run.workers = 2;
    run.newcomers = 1;
    run.fates = {{2, {.after = -1, .transfers = at}}};
    const auto ends = run_elastic(run);
    expect_survivors(ends, {2}, std::to_string(at));
  }
}

// Alone, a newcomer goes on if it has what the others had, and ends with an error otherwise.
TEST(ElasticNewcomers, TheLastWorkerThatHasWeightsMayDieWhileANewcomerJoins) {
  const TemporaryFolder folder;
  ElasticToy run = usual({{"train.checkpoint_every", "1"}});
  const auto undisturbed = run_toy(1, run.toy);
  run.workers = 1;
  run.newcomers = 1;
  run.toy.places.out = (folder / "whole").string();
  run.fates = {{0, {.after = 4, .transfers = kEver}}};
  const int transfers = run_elastic(run)[0].transfers;
  int finished = 0, ended = 0;
  for (int at = 0; at < transfers && finished < 30; ++at) {
    SCOPED_TRACE(at);
    run.toy.places.out = (folder / std::to_string(at)).string();
    run.fates = {{0, {.after = 4, .transfers = at, .silent = at % 10 == 5}}};
    const auto ends = run_elastic(run);
    EXPECT_FALSE(ends[0].ended_well);
    if (ends[1].ended_well) {
      ++finished;
      EXPECT_EQ(ends[1].result.summary.steps, 20u);
      EXPECT_LT(distance(ends[1].result.weights, undisturbed[0].weights), 1e-5);
      EXPECT_THAT(ends[1].result.summary.lost_workers, ElementsAre(0));
      EXPECT_THAT(ends[1].result.summary.joined_workers, ElementsAre(1));
      expect_every_step_once(metrics_of(run.toy.places.out), 20);
      EXPECT_TRUE(summary_of(run.toy.places.out)["finished"].get<bool>());
    } else {
      ++ended;
      EXPECT_THAT(ends[1].error, HasSubstr("no worker is left that has weights"));
      EXPECT_FALSE(std::filesystem::exists(folder / std::to_string(at) / "summary.json"));
      expect_every_step_once(metrics_of(run.toy.places.out), 5);
      EXPECT_THAT(list_checkpoints(run.toy.places.out).back().string(),
                  HasSubstr("checkpoint-0000000005"));
    }
  }
  EXPECT_GT(finished, 5);
  EXPECT_GT(ended, 5);
}

// Of those that are left, some know that the newcomer has joined, and others do not.
TEST(ElasticNewcomers, AnotherWorkerMayDieWhileANewcomerJoins) {
  const TemporaryFolder folder;
  ElasticToy run = usual({{"train.checkpoint_every", "1"}, {"train.epochs", "3"}});
  const auto undisturbed = run_toy(1, run.toy);
  run.workers = 3;
  run.newcomers = 1;
  run.fates = {{2, {.after = 4, .transfers = kEver}}};
  const int transfers = run_elastic(run)[2].transfers;
  for (int at = transfers / 4; at < transfers / 2; ++at) {
    SCOPED_TRACE(at);
    run.fates = {{2, {.after = 4, .transfers = at, .silent = at % 4 == 1}}};
    const auto ends = run_elastic(run);
    EXPECT_FALSE(ends[2].ended_well);
    for (const size_t i : {0, 1, 3}) {
      ASSERT_TRUE(ends[i].ended_well) << "worker " << i << ": " << ends[i].error;
      EXPECT_LT(distance(ends[i].result.weights, undisturbed[0].weights), 1e-5);
      EXPECT_THAT(ends[i].result.summary.joined_workers, ElementsAre(3)) << "worker " << i;
    }
  }
}

TEST(ElasticNewcomers, ANewcomerThatFitsStaysWhenAnotherOneDoesNot) {
  for (const int workers : {1, 2}) {
    for (const int misfit : {workers, workers + 1}) {
      ElasticToy run = usual({{"train.checkpoint_every", "1"}});
      run.workers = workers;
      run.newcomers = 2;
      run.settings_of = {{misfit, {{"optimizer.lr", "0.2"}}}};
      const int other = 2 * workers + 1 - misfit;
      const auto ends = run_elastic(run);
      EXPECT_FALSE(ends[static_cast<size_t>(misfit)].ended_well);
      EXPECT_THAT(ends[static_cast<size_t>(misfit)].error, HasSubstr("optimizer.lr"));
      for (const int worker : {0, other})
        EXPECT_TRUE(ends[static_cast<size_t>(worker)].ended_well)
            << worker << ": " << ends[static_cast<size_t>(worker)].error;
      EXPECT_THAT(ends[0].result.notes,
                  Contains(HasSubstr("worker " + std::to_string(misfit) + " could not join")));
      EXPECT_THAT(ends[0].result.summary.joined_workers, ElementsAre(other));
      EXPECT_THAT(ends[0].result.summary.lost_workers, IsEmpty());
    }
  }
  // More of them than of those that have weights.
  ElasticToy run = usual({{"train.checkpoint_every", "1"}});
  run.workers = 1;
  run.newcomers = 2;
  run.settings_of = {{1, {{"optimizer.lr", "0.2"}}}, {2, {{"optimizer.lr", "0.2"}}}};
  const auto ends = run_elastic(run);
  EXPECT_TRUE(ends[0].ended_well) << ends[0].error;
  for (const size_t i : {1, 2}) EXPECT_THAT(ends[i].error, HasSubstr("optimizer.lr"));
}

TEST(ElasticNewcomers, ANewcomerOfAnotherRecipeIsRefusedAndTheOthersGoOn) {
  ElasticToy run = usual({{"train.checkpoint_every", "1"}});
  run.workers = 2;
  run.newcomers = 1;
  run.settings_of = {{2, {{"optimizer.lr", "0.2"}}}};
  const auto ends = run_elastic(run);
  EXPECT_FALSE(ends[2].ended_well);
  EXPECT_THAT(ends[2].error, AllOf(HasSubstr("optimizer.lr"), HasSubstr("0.2")));
  for (const size_t i : {0, 1}) EXPECT_TRUE(ends[i].ended_well) << ends[i].error;
  EXPECT_THAT(ends[0].result.notes, Contains(HasSubstr("worker 2 could not join")));
  EXPECT_THAT(ends[0].result.summary.lost_workers, IsEmpty());
  EXPECT_THAT(ends[0].result.summary.joined_workers, IsEmpty());
}

}  // namespace
}  // namespace thinwire
