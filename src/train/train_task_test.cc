// The training loop against plain libtorch, against itself at other numbers of ranks, and in
// trouble. SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <numbers>

#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a user of libtorch writes, on the samples in thinwire's order.
std::vector<torch::Tensor> plain_loop(const std::shared_ptr<ToyNet>& net,
                                      torch::optim::Optimizer& optimizer, double clip,
                                      const std::function<double(int64_t step)>& rate) {
  const ToyData data(90);
  int64_t step = 0;
  for (uint64_t epoch = 0; epoch < 2; ++epoch) {
    const auto order =
        random_permutation({.seed = 3, .use = RandomUse::kShuffle, .step = epoch}, 90);
    for (size_t begin = 0; begin < 90; begin += 20) {
      const auto ids = std::span(order).subspan(begin, std::min<size_t>(20, 90 - begin));
      const Batch batch = data.fetch(ids, {});
      for (auto& group : optimizer.param_groups()) group.options().set_lr(rate(step));
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(net->forward(batch.inputs), batch.targets).backward();
      if (clip > 0) torch::nn::utils::clip_grad_norm_(net->parameters(), clip);
      optimizer.step();
      ++step;
    }
  }
  std::vector<torch::Tensor> weights;
  for (const torch::Tensor& parameter : net->parameters()) weights.push_back(parameter.detach());
  for (const torch::Tensor& buffer : net->buffers()) weights.push_back(buffer);
  return weights;
}

TEST(TrainTask, OneWorkerIsAPlainLoopBitForBitWithSgd) {
  at::set_num_threads(1);
  const auto net = std::make_shared<ToyNet>(0, /*norm=*/true);
  torch::optim::SGD optimizer(
      net->parameters(),
      torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(1e-3));
  const auto cosine = [](int64_t step) {
    return 0.1 * (1 + std::cos(std::numbers::pi * (static_cast<double>(step) / 10))) / 2;
  };
  const auto plain = plain_loop(net, optimizer, 0.5, cosine);
  const ToyRun run = run_toy(1, {.settings = {{"optimizer.momentum", "0.9"},
                                              {"optimizer.nesterov", "true"},
                                              {"optimizer.weight_decay", "0.001"},
                                              {"schedule.name", "cosine"},
                                              {"clip.norm", "0.5"}},
                                 .norm = true});
  EXPECT_TRUE(same_bits(run.weights[0], plain));
  EXPECT_EQ(run.summaries[0].steps, 10u);
  EXPECT_EQ(run.summaries[0].samples, 180u);
}

TEST(TrainTask, OneWorkerIsAPlainLoopBitForBitWithAdam) {
  at::set_num_threads(1);
  const auto net = std::make_shared<ToyNet>();
  torch::optim::Adam optimizer(net->parameters(),
                               torch::optim::AdamOptions(0.01).betas({0.8, 0.99}).eps(1e-6));
  const auto plain = plain_loop(net, optimizer, 0, [](int64_t) { return 0.01; });
  const ToyRun run = run_toy(1, {.settings = {{"optimizer.name", "adam"},
                                              {"optimizer.lr", "0.01"},
                                              {"optimizer.beta1", "0.8"},
                                              {"optimizer.beta2", "0.99"},
                                              {"optimizer.epsilon", "1e-6"}}});
  EXPECT_TRUE(same_bits(run.weights[0], plain));
}

// Batches of 20 and 10 over 3 or 4 ranks: unequal parts, weighted.
TEST(TrainTask, RanksOnPartsOfABatchMatchOneOnTheWhole) {
  const ToyOptions toy{.settings = {{"optimizer.momentum", "0.9"}}, .dropout = 0.25};
  const ToyRun whole = run_toy(1, toy);
  for (const int ranks : {2, 3, 4}) {
    const ToyRun parts = run_toy(ranks, toy);
    EXPECT_LT(distance(parts.weights[0], whole.weights[0]), 2e-6) << ranks;
    for (int rank = 1; rank < ranks; ++rank)
      EXPECT_TRUE(same_bits(parts.weights[0], parts.weights[static_cast<size_t>(rank)]));
    EXPECT_EQ(parts.summaries[0].weights_xxh3, parts.summaries[1].weights_xxh3);
    EXPECT_EQ(parts.summaries[0].final_test_error, whole.summaries[0].final_test_error);
    EXPECT_EQ(parts.summaries[0].samples, 180u);
  }
  EXPECT_GT(distance(run_toy(1, {.settings = {{"optimizer.momentum", "0.9"}}}).weights[0],
                     whole.weights[0]),
            1e-3);  // dropout did something
}

TEST(TrainTask, MicroBatchesMatchTheWhole) {
  const ToyOptions whole{.dropout = 0.25};
  ToyOptions parts = whole;
  parts.settings = {{"train.micro_batches", "3"}};
  EXPECT_LT(distance(run_toy(2, parts).weights[0], run_toy(2, whole).weights[0]), 2e-6);
}

TEST(TrainTask, MoreRanksThanSamples) {
  const ToyOptions toy{.settings = {{"train.batch", "2"}}, .samples = 5};
  EXPECT_LT(distance(run_toy(4, toy).weights[0], run_toy(1, toy).weights[0]), 2e-6);
}

TEST(TrainTask, SameBitsEveryTime) {
  const ToyOptions toy{.settings = {{"exchange.codec", "topk:density=0.1"}}, .dropout = 0.25};
  EXPECT_TRUE(same_bits(run_toy(3, toy).weights[2], run_toy(3, toy).weights[0]));
}

TEST(TrainTask, BatchNormStatisticsEndAsTheMeanOverRanks) {
  const ToyRun run = run_toy(3, {.norm = true});
  EXPECT_TRUE(same_bits(run.weights[0], run.weights[1]));
  EXPECT_TRUE(same_bits(run.weights[0], run.weights[2]));
}

// Loss without end on one rank in one step.
ToyOptions with_nan(int bad_rank, int bad_step, bool norm) {
  ToyOptions toy{.norm = norm};
  toy.change = [=](int rank, Task& task) {
    if (rank != bad_rank) return;
    task.loss = [=, step = 0](const torch::Tensor& outputs, const torch::Tensor& targets) mutable {
      const torch::Tensor loss = torch::nn::functional::cross_entropy(outputs, targets);
      const bool training = outputs.requires_grad();
      return training && step++ == bad_step ? loss * std::numeric_limits<float>::quiet_NaN() : loss;
    };
  };
  return toy;
}

TEST(TrainTask, NanOnOneRankSkipsTheStepEverywhereWithoutATrace) {
  const ToyRun run = run_toy(2, with_nan(1, 4, /*norm=*/true));
  EXPECT_EQ(run.summaries[0].skipped_steps, 1u);
  ASSERT_EQ(run.notes.size(), 1u);
  EXPECT_THAT(run.notes[0], AllOf(HasSubstr("step 5 skipped"), HasSubstr("rank 1")));
  EXPECT_TRUE(same_bits(run.weights[0], run.weights[1]));
  for (const torch::Tensor& tensor : run.weights[0])
    EXPECT_TRUE(tensor.isfinite().all().item<bool>());
}

// The last step is skipped: everything must be as after the one before.
TEST(TrainTask, ASkippedStepLeavesWeightsAndBuffers) {
  const ToyRun skipped = run_toy(1, with_nan(0, 9, /*norm=*/true));
  const ToyRun shorter = run_toy(1, {.settings = {{"train.max_steps", "9"}}, .norm = true});
  EXPECT_TRUE(same_bits(skipped.weights[0], shorter.weights[0]));
}

TEST(TrainTask, ScoresAreTheSameForEveryNumberOfRanks) {
  const ToyOptions untrained{.settings = {{"train.epochs", "0"}}};
  const RunSummary one = run_toy(1, untrained).summaries[0];
  EXPECT_GT(one.final_test_error, 0.1);
  for (const int ranks : {2, 3, 5}) {
    for (const RunSummary& summary : run_toy(ranks, untrained).summaries) {
      EXPECT_EQ(summary.final_test_error, one.final_test_error);
      EXPECT_EQ(summary.final_test_loss, one.final_test_loss);
    }
  }
}

TEST(TrainTask, LearnsTheProblem) {
  const ToyRun run = run_toy(2, {.settings = {{"train.epochs", "20"}}, .samples = 600});
  EXPECT_LT(run.summaries[0].final_test_error, 0.15);  // 0.6 at the start
  EXPECT_LE(run.summaries[0].best_test_error, run.summaries[0].final_test_error);
  EXPECT_EQ(run.summaries[0].wire_ratio, run.summaries[1].wire_ratio);
}

std::string failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no failure";
}

TEST(TrainTask, DifferentRecipesAreRefusedNamingTheDifference) {
  const ToyData data(40);
  const std::string failure = failure_of([&] {
    run_local(3, [&](Group& group) {
      const Recipe recipe = toy_recipe({{"optimizer.lr", group.rank() == 2 ? "0.2" : "0.1"}});
      train_task(recipe, {}, group, task_of_net(std::make_shared<ToyNet>()),
                 {.train = data, .test = data}, {});
    });
  });
  EXPECT_THAT(failure, AllOf(HasSubstr("optimizer.lr=0.2"), HasSubstr("rank 2")));
}

TEST(TrainTask, ARankThatThrowsEndsTheRunOfAllNamingIt) {
  ToyOptions toy;
  toy.change = [](int rank, Task& task) {
    if (rank != 1) return;
    task.forward = [](const torch::Tensor&) -> torch::Tensor { throw std::runtime_error("bang"); };
  };
  EXPECT_THAT(failure_of([&] { run_toy(3, toy); }), HasSubstr("bang"));
}

TEST(TrainTask, DropoutNeedsATrainingStep) {
  const torch::Tensor ones = torch::ones({4, 3});
  EXPECT_THROW(counted_dropout(ones, 0.5, true), Error);
  EXPECT_TRUE(counted_dropout(ones, 0.5, false).equal(ones));
}

}  // namespace
}  // namespace thinwire
