// The trainer on every kind of rank: processes end with the bits that threads end with.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>

#include "multirank/ranks.h"
#include "train/temporary_folder.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

class Training : public ::testing::TestWithParam<const char*> {};

TEST_P(Training, EndsWithTheBitsOfThreads) {
  const ToyOptions toy{.settings = {{"exchange.codec", GetParam()}, {"optimizer.momentum", "0.9"}},
                       .dropout = 0.25,
                       .norm = true,
                       .samples = 100};  // batches of 20: nine ranks have two samples each
  for (const int count : rank_counts()) {
    const uint64_t expected = run_toy(count, toy)[0].summary.weights_xxh3;
    on_ranks(count, [&](Group& group) {
      const ToyResult mine = train_toy(group, toy);
      EXPECT_EQ(mine.summary.weights_xxh3, expected) << count << " ranks";
      EXPECT_EQ(mine.summary.steps, 10u);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, Training,
                         ::testing::Values("fp32", "topk:density=0.1", "adacomp",
                                           "sidco:density=0.05"));

// As many attackers as a median bears, each of another kind: of one attacker each attack in turn,
// of several neighbours in the list at once.
TEST(AttackedTraining, EndsWithTheBitsOfThreads) {
  const std::vector<std::string> attacks = {
      "sign_flip:scale=100", "equivocation", "noise", "alie",  "nan",
      "ipm:epsilon=100",     "label_flip",   "zeros", "mimic", "replay"};
  for (const int count : rank_counts()) {
    for (size_t first = 0; count >= 3 && first < attacks.size(); ++first) {
      std::string all = attacks[first];
      for (int more = 1; more < (count - 1) / 2; ++more)
        all += " and " + attacks[(first + static_cast<size_t>(more)) % attacks.size()];
      const ToyOptions toy{.settings = {{"run.attack", all},
                                        {"exchange.combine", "median"},
                                        {"exchange.method", "gather"},
                                        {"exchange.momentum", "memory"},
                                        {"optimizer.momentum", "0.9"},
                                        {"train.epochs", "1"}},
                           .samples = 80};
      const ToyResult expected = run_toy(count, toy)[0];
      EXPECT_LT(expected.summary.final_test_loss, 2) << all;
      on_ranks(count, [&](Group& group) {
        const ToyResult mine = train_toy(group, toy);
        EXPECT_EQ(mine.summary.weights_xxh3, expected.summary.weights_xxh3)
            << count << " ranks, " << all;
        EXPECT_EQ(mine.summary.steps, 4u);
        EXPECT_EQ(mine.summary.skipped_steps, 0u);
      });
    }
  }
}

class LocalTraining : public ::testing::TestWithParam<const char*> {};

// The same for workers that step by themselves, whose leaders are the same then, too.
TEST_P(LocalTraining, EndsWithTheBitsOfThreads) {
  const ToyOptions toy{.settings = {{"sync.method", GetParam()},
                                    {"exchange.codec", "int8"},
                                    {"optimizer.lr", "0.3"}},
                       .norm = true,
                       .samples = 200};  // ten steps an epoch
  for (const int count : rank_counts()) {
    if (count == 1) continue;  // nobody to talk to, and no two groups
    const ToyResult expected = run_toy(count, toy)[0];
    on_ranks(count, [&](Group& group) {
      const ToyResult mine = train_toy(group, toy);
      EXPECT_EQ(mine.summary.weights_xxh3, expected.summary.weights_xxh3) << count << " ranks";
      EXPECT_EQ(mine.summary.steps, 20u);
      if (group.rank() == 0) {
        EXPECT_EQ(mine.tests.back().leader, expected.tests.back().leader);
        EXPECT_EQ(mine.tests.back().spread, expected.tests.back().spread);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, LocalTraining,
                         ::testing::Values("leader:tau=2,tau_global=4,groups=2",
                                           "leader:tau=3,tau_global=3,groups=1,prox=0.2",
                                           "average:tau=4", "easgd:tau=2"));

// Every rank writes its part of the checkpoint, and each finds its own again.
TEST(TrainingFiles, ResumesBitForBit) {
  ToyOptions toy{
      .settings = {{"exchange.codec", "topk:density=0.1"}}, .norm = true, .samples = 100};
  for (const int count : rank_counts()) {
    on_ranks(count, [&](Group& group) {
      const TemporaryFolder folder;  // rank 0's is the one that all use
      char path[256] = {};
      std::strncpy(path, folder.path().c_str(), sizeof path - 1);
      group.broadcast(std::as_writable_bytes(std::span(path)), 0);

      const ToyResult whole = train_toy(group, toy);
      ToyOptions parts = toy;
      parts.places.out = path;
      parts.stop_after = 3;
      EXPECT_EQ(train_toy(group, parts).summary.steps, 3u);
      parts.places.resume = path;
      parts.stop_after = UINT64_MAX;
      const ToyResult resumed = train_toy(group, parts);
      EXPECT_TRUE(same_bits(resumed.weights, whole.weights));
      group.barrier();
    });
  }
}

}  // namespace
}  // namespace thinwire
