// Tests of asynchronous workers in the trainer, one of which is lost, and of tests before the end
// of their run.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "thinwire/survived.h"
#include "train/checkpoint.h"
#include "train/temporary_folder.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kLost = 2;

// Four workers, one of which fails in its `at`th step; 60 steps of each.
ToyOptions losing(const std::string& more, int lost = kLost, int at = 12) {
  ToyOptions toy;
  toy.settings = {{"sync.method", "leader:tau=4,tau_global=4,groups=1,asynchronous=true" + more},
                  {"train.epochs", "12"},
                  {"train.evaluate_every", "0"}};
  toy.norm = true;
  toy.change = [=](int rank, Task& task) {
    task.loss = [=, step = 0](const torch::Tensor& outputs, const torch::Tensor& targets) mutable {
      if (outputs.requires_grad()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        if (rank == lost && ++step == at) throw std::runtime_error("the disk is full");
      }
      return torch::nn::functional::cross_entropy(outputs, targets);
    };
  };
  return toy;
}

// By rank: what a run came to, or how it failed.
struct Outcome {
  std::vector<ToyResult> results{4};
  std::vector<std::string> errors{4};
  bool survived = false;  // by the lost worker's own account
  bool failed = false;    // the job as a whole
};

Outcome run_losing(const ToyOptions& toy) {
  Outcome all;
  try {
    run_local(4, [&](Group& group) {
      const auto me = static_cast<size_t>(group.rank());
      try {
        all.results[me] = train_toy(group, toy);
      } catch (const std::exception& error) {
        all.errors[me] = error.what();
        if (group.rank() == kLost) all.survived = dynamic_cast<const SurvivedError*>(&error);
        throw;
      }
    });
  } catch (const std::exception&) {
    all.failed = true;
  }
  return all;
}

TEST(LostWorker, IsNamedAndTheOthersTrainOnToTheEnd) {
  const TemporaryFolder folder;
  ToyOptions toy = losing(",patience=20");
  toy.places.out = (folder / "run").string();
  const auto since = std::chrono::steady_clock::now();
  const Outcome all = run_losing(toy);
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::seconds(15));
  EXPECT_FALSE(all.failed);
  EXPECT_TRUE(all.survived);
  EXPECT_EQ(all.errors[kLost], "the disk is full");

  const ToyResult& first = all.results[0];
  EXPECT_THAT(first.notes,
              Contains("rank 2 is lost: the disk is full; the others go on without it"));
  for (const size_t rank : {0, 1, 3}) {
    const RunSummary& summary = all.results[rank].summary;
    EXPECT_EQ(all.errors[rank], "");
    EXPECT_TRUE(summary.finished);
    EXPECT_THAT(summary.lost_workers, ElementsAre(kLost));
    EXPECT_EQ(summary.world_size, 4);
    EXPECT_EQ(summary.weights_xxh3, first.summary.weights_xxh3);
    EXPECT_TRUE(same_bits(all.results[rank].weights, first.weights));
    EXPECT_GE(summary.samples, 3 * 40 * 5u);  // what is left of 60 steps of batches of 5 and 2 or 3
  }
  ASSERT_EQ(first.tests.size(), 1u);
  EXPECT_LT(first.tests[0].error, 0.5) << "the others' work is lost";
  EXPECT_TRUE(first.tests[0].spread);

  std::ifstream metrics(folder / "run/metrics.jsonl");
  std::vector<std::string> lost;
  for (std::string line; std::getline(metrics, line);)
    for (const auto& worker : nlohmann::json::parse(line).value("lost", nlohmann::json::array()))
      lost.push_back(worker["rank"].dump() + ": " + worker["why"].get<std::string>());
  EXPECT_THAT(lost, ElementsAre("2: the disk is full"));
  EXPECT_EQ(list_checkpoints(folder / "run").size(), 1u);
}

// What is left can be resumed by as many workers.
TEST(LostWorker, LeavesACheckpointOfTheOthers) {
  const TemporaryFolder folder;
  ToyOptions toy = losing(",patience=20");
  toy.places.out = (folder / "run").string();
  const Outcome all = run_losing(toy);
  ASSERT_FALSE(all.failed);
  ToyOptions again = losing(",patience=20", /*lost=*/-1);
  again.places.out = again.places.resume = toy.places.out;
  again.settings[1].second = "14";
  const auto resumed = run_toy(3, again);
  EXPECT_TRUE(resumed[0].summary.finished);
  for (const std::string& note : resumed[0].notes) EXPECT_THAT(note, Not(HasSubstr("saved by")));
}

TEST(LostWorker, EndsTheRunWithoutPatience) {
  const Outcome all = run_losing(losing(""));
  EXPECT_TRUE(all.failed);
  EXPECT_FALSE(all.survived);
  EXPECT_EQ(all.errors[kLost], "the disk is full");
  for (const size_t rank : {0, 1, 3}) EXPECT_THAT(all.errors[rank], HasSubstr("rank 2"));
}

TEST(LostWorker, EndsTheRunWhereItIsRankZero) {
  const Outcome all = run_losing(losing(",patience=5", /*lost=*/0));
  EXPECT_TRUE(all.failed);
  for (const size_t rank : {1, 2, 3}) EXPECT_THAT(all.errors[rank], HasSubstr("rank 0"));
}

TEST(AsynchronousTests, AreOfTheLeaderAtRounds) {
  ToyOptions toy = losing("", /*lost=*/-1);
  toy.settings[2].second = "2.4";  // epochs of five steps: every twelve of sixty
  ToyOptions still = toy;
  still.settings.emplace_back("optimizer.lr", "0");
  const double untrained = run_toy(4, still)[0].tests.back().loss;
  const auto run = run_toy(4, toy);
  const auto& tests = run[0].tests;
  ASSERT_EQ(tests.size(), 5u);
  for (size_t i = 0; i + 1 < tests.size(); ++i) {
    ASSERT_TRUE(tests[i].round);
    EXPECT_EQ(*tests[i].round, 3 * (i + 1) - 1);
    EXPECT_DOUBLE_EQ(tests[i].epoch, 2.4 * static_cast<double>(i + 1));
    EXPECT_EQ(tests[i].samples, 53u);
    EXPECT_EQ(tests[i].leader_error, tests[i].error);
    EXPECT_FALSE(tests[i].spread);
  }
  // Which worker leads is a matter of time, and a leader's loss may be above that of an earlier
  // one.
  EXPECT_LT(std::min({tests[0].loss, tests[1].loss, tests[2].loss, tests[3].loss}),
            untrained - 0.01);
  EXPECT_FALSE(tests.back().round);
  EXPECT_TRUE(tests.back().spread);
}

// Rank 1 leads, for its loss is zero, and so stays where it began; rank 0, which tests, does not.
TEST(AsynchronousTests, AreOfTheLeadersWeights) {
  ToyOptions toy;
  toy.settings = {
      {"sync.method", "leader:tau=5,tau_global=5,pull_global=0,groups=1,asynchronous=true"},
      {"train.epochs", "4"},
      {"train.evaluate_every", "1"}};
  toy.change = [](int rank, Task& task) {
    task.loss = [rank](const torch::Tensor& outputs, const torch::Tensor& targets) {
      // Rank 1 has told its loss of a round before rank 0 asks who leads.
      if (outputs.requires_grad())
        std::this_thread::sleep_for(std::chrono::milliseconds(rank == 0 ? 6 : 2));
      const torch::Tensor loss = torch::nn::functional::cross_entropy(outputs, targets);
      return rank == 1 && outputs.requires_grad() ? 0 * loss : loss;
    };
  };
  const auto tests = run_toy(2, toy)[0].tests;
  ToyOptions still = toy;
  still.settings.emplace_back("optimizer.lr", "0");
  const double untrained = run_toy(2, still)[0].tests.back().loss;
  ASSERT_EQ(tests.size(), 4u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tests[i].leader, 1);
    EXPECT_NEAR(tests[i].loss, untrained, 1e-12);
  }
  EXPECT_LT(tests[3].loss, untrained - 0.01);  // the mean of both
}

}  // namespace
}  // namespace thinwire
