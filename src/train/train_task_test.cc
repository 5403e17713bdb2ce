// Tests of the training loop: against plain libtorch, at several numbers of ranks, and with
// faults.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <numbers>

#include "train/draw_context.h"
#include "train/own_buffers.h"
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
  const auto run = run_toy(1, {.settings = {{"optimizer.momentum", "0.9"},
                                            {"optimizer.nesterov", "true"},
                                            {"optimizer.weight_decay", "0.001"},
                                            {"schedule.name", "cosine"},
                                            {"clip.norm", "0.5"}},
                               .norm = true});
  EXPECT_TRUE(same_bits(run[0].weights, plain));
  EXPECT_EQ(run[0].summary.steps, 10u);
  EXPECT_EQ(run[0].summary.samples, 180u);
}

// The last bits of libtorch's square roots depend on the processor.
TEST(TrainTask, OneWorkerIsAPlainLoopUpToRoundingWithAdam) {
  at::set_num_threads(1);
  const auto net = std::make_shared<ToyNet>();
  torch::optim::Adam optimizer(net->parameters(),
                               torch::optim::AdamOptions(0.01).betas({0.8, 0.99}).eps(1e-6));
  const auto plain = plain_loop(net, optimizer, 0, [](int64_t) { return 0.01; });
  const auto run = run_toy(1, {.settings = {{"optimizer.name", "adam"},
                                            {"optimizer.lr", "0.01"},
                                            {"optimizer.beta1", "0.8"},
                                            {"optimizer.beta2", "0.99"},
                                            {"optimizer.epsilon", "1e-6"}}});
  EXPECT_LT(distance(run[0].weights, plain), 1e-6);
}

TEST(TrainTask, BiasesAndNormsCanBeSparedTheWeightDecay) {
  at::set_num_threads(1);
  const auto net = std::make_shared<ToyNet>(0, /*norm=*/true);
  std::vector<torch::Tensor> matrices, others;
  for (const torch::Tensor& parameter : net->parameters())
    (parameter.dim() > 1 ? matrices : others).push_back(parameter);
  torch::optim::SGD optimizer(
      {torch::optim::OptimizerParamGroup(matrices,
                                         std::make_unique<torch::optim::SGDOptions>(
                                             torch::optim::SGDOptions(0.1).weight_decay(0.1))),
       torch::optim::OptimizerParamGroup(
           others, std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(0.1)))},
      torch::optim::SGDOptions(0.1));
  const auto plain = plain_loop(net, optimizer, 0, [](int64_t) { return 0.1; });
  const auto run = run_toy(
      1, {.settings = {{"optimizer.weight_decay", "0.1"}, {"optimizer.decay_bias_norm", "false"}},
          .norm = true});
  EXPECT_TRUE(same_bits(run[0].weights, plain));
}

// Batches of 20 and 10 over 3 or 4 ranks: unequal parts, weighted.
TEST(TrainTask, RanksOnPartsOfABatchMatchOneOnTheWhole) {
  const ToyOptions toy{.settings = {{"optimizer.momentum", "0.9"}}, .dropout = 0.25};
  const auto whole = run_toy(1, toy);
  for (const int ranks : {2, 3, 4}) {
    const auto parts = run_toy(ranks, toy);
    EXPECT_LT(distance(parts[0].weights, whole[0].weights), 2e-6) << ranks;
    for (int rank = 1; rank < ranks; ++rank)
      EXPECT_TRUE(same_bits(parts[0].weights, parts[static_cast<size_t>(rank)].weights));
    EXPECT_EQ(parts[0].summary.weights_xxh3, parts[1].summary.weights_xxh3);
    EXPECT_EQ(parts[0].summary.final_test_error, whole[0].summary.final_test_error);
    EXPECT_EQ(parts[0].summary.samples, 180u);
  }
  EXPECT_GT(distance(run_toy(1, {.settings = {{"optimizer.momentum", "0.9"}}})[0].weights,
                     whole[0].weights),
            1e-3);  // dropout did something
}

TEST(TrainTask, MicroBatchesMatchTheWhole) {
  const ToyOptions whole{.dropout = 0.25};
  ToyOptions parts = whole;
  parts.settings = {{"train.micro_batches", "3"}};
  EXPECT_LT(distance(run_toy(2, parts)[0].weights, run_toy(2, whole)[0].weights), 2e-6);
}

TEST(TrainTask, MoreRanksThanSamples) {
  const ToyOptions toy{.settings = {{"train.batch", "2"}}, .samples = 5};
  EXPECT_LT(distance(run_toy(4, toy)[0].weights, run_toy(1, toy)[0].weights), 2e-6);
}

TEST(TrainTask, SameBitsEveryTime) {
  const ToyOptions toy{.settings = {{"exchange.codec", "topk:density=0.1"}}, .dropout = 0.25};
  EXPECT_TRUE(same_bits(run_toy(3, toy)[2].weights, run_toy(3, toy)[0].weights));
}

TEST(TrainTask, BatchNormStatisticsEndAsTheMeanOverRanks) {
  const auto run = run_toy(3, {.norm = true});
  EXPECT_TRUE(same_bits(run[0].weights, run[1].weights));
  EXPECT_TRUE(same_bits(run[0].weights, run[2].weights));
}

TEST(OwnBuffers, AverageInRankOrderAndOnlyFloats) {
  run_local(3, [](Group& group) {
    torch::nn::BatchNorm1d norm(2);
    norm->running_mean.fill_(0.1f * static_cast<float>(group.rank() + 1));
    norm->num_batches_tracked.fill_(group.rank());
    OwnBuffers buffers(*norm);
    buffers.keep();
    buffers.average(group);
    const double mean = (0.1f + static_cast<double>(0.2f) + 0.1f * 3) / 3;
    EXPECT_TRUE(norm->running_mean.equal(torch::full({2}, static_cast<float>(mean))));
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), group.rank());
    buffers.restore();
    EXPECT_FLOAT_EQ(norm->running_mean[0].item<float>(),
                    0.1f * static_cast<float>(group.rank() + 1));
  });
}

// A loss that is no number, on one rank in one step.
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
  const auto run = run_toy(2, with_nan(1, 4, /*norm=*/true));
  EXPECT_EQ(run[0].summary.skipped_steps, 1u);
  ASSERT_EQ(run[0].notes.size(), 1u);
  EXPECT_THAT(run[0].notes[0], AllOf(HasSubstr("step 5 skipped"), HasSubstr("rank 1")));
  EXPECT_TRUE(same_bits(run[0].weights, run[1].weights));
  for (const torch::Tensor& tensor : run[0].weights)
    EXPECT_TRUE(tensor.isfinite().all().item<bool>());
}

// The last step is skipped: everything must be as after the one before.
TEST(TrainTask, ASkippedStepLeavesWeightsAndBuffers) {
  const auto skipped = run_toy(1, with_nan(0, 9, /*norm=*/true));
  const auto shorter = run_toy(1, {.settings = {{"train.max_steps", "9"}}, .norm = true});
  EXPECT_TRUE(same_bits(skipped[0].weights, shorter[0].weights));
}

TEST(TrainTask, ScoresAreTheSameForEveryNumberOfRanks) {
  const ToyOptions untrained{.settings = {{"train.epochs", "0"}}};
  const RunSummary one = run_toy(1, untrained)[0].summary;
  EXPECT_GT(one.final_test_error, 0.1);
  for (const int ranks : {2, 3, 5}) {
    for (const ToyResult& result : run_toy(ranks, untrained)) {
      EXPECT_EQ(result.summary.final_test_error, one.final_test_error);
      EXPECT_EQ(result.summary.final_test_loss, one.final_test_loss);
    }
  }
}

TEST(TrainTask, HeldOutSamplesAreJudgedBesides) {
  const auto run = run_toy(2, {.held_out = 30});
  ASSERT_EQ(run[0].tests.size(), 2u);
  ASSERT_TRUE(run[1].summary.final_hold_out_error.has_value());
  EXPECT_EQ(run[0].tests[1].hold_out_error, run[1].summary.final_hold_out_error);
  EXPECT_EQ(std::round(*run[1].summary.final_hold_out_error * 30),
            *run[1].summary.final_hold_out_error * 30);
  EXPECT_FALSE(run_toy(1, {})[0].summary.final_hold_out_error.has_value());
}

TEST(TrainTask, LearnsTheProblem) {
  const auto run = run_toy(2, {.settings = {{"train.epochs", "20"}}, .samples = 600});
  EXPECT_LT(run[0].summary.final_test_error, 0.15);  // 0.6 at the start
  EXPECT_LE(run[0].summary.best_test_error, run[0].summary.final_test_error);
  EXPECT_EQ(run[0].summary.wire_ratio, run[1].summary.wire_ratio);
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

TEST(CountedDropout, KeepsTheMeanAndDrawsByPlace) {
  const torch::Tensor ones = torch::ones({1000, 64});
  torch::Tensor whole, again, part;
  {
    const DrawScope scope({.seed = 9, .step = 4, .first = 0, .rows = 1000});
    whole = counted_dropout(ones, 0.25, true);
    again = counted_dropout(ones, 0.25, true);  // the next layer
  }
  {
    const DrawScope scope({.seed = 9, .step = 4, .first = 600, .rows = 400});
    part = counted_dropout(ones.narrow(0, 0, 400), 0.25, true);
  }
  EXPECT_TRUE(part.equal(whole.narrow(0, 600, 400)));
  EXPECT_FALSE(again.equal(whole));
  EXPECT_NEAR(whole.eq(0).to(torch::kDouble).mean().item<double>(), 0.25, 0.01);  // 6 sigma
  EXPECT_TRUE(whole.masked_select(whole.ne(0)).eq(1 / 0.75f).all().item<bool>());
  const double both = (whole.eq(0) & again.eq(0)).to(torch::kDouble).mean().item<double>();
  EXPECT_NEAR(both, 0.0625, 0.006);
  const DrawScope scope({.seed = 9, .step = 4, .first = 0, .rows = 7});
  EXPECT_THROW(counted_dropout(ones, 0.25, true), Error);  // 64,000 values are not of 7 samples
}

}  // namespace
}  // namespace thinwire
