// Tests of SignSgd against its formula, and of training with the codec demo.
// SPDX-License-Identifier: Apache-2.0
#include "train/sign_sgd.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>

#include "train/optimizer.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

using torch::optim::SGDOptions;

TEST(SignSgd, FollowsItsFormula) {
  torch::Tensor weights = torch::tensor({1.0f, -2.0f, 0.5f, 4.0f});
  const SGDOptions options = SGDOptions(0.125).weight_decay(0.5);
  SignSgd optimizer(
      {torch::optim::OptimizerParamGroup({weights}, std::make_unique<SGDOptions>(options))},
      options);
  weights.mutable_grad() = torch::tensor({3.0f, -1e-30f, 0.0f, -0.0f});
  optimizer.step();
  EXPECT_TRUE(weights.equal(
      torch::tensor({1 - 0.125f * 1.5f, -2 + 0.125f * 2, 0.5f - 0.125f * 0.25f, 4 - 0.125f * 2})));
  EXPECT_TRUE(optimizer.state().empty());
}

Settings demo_settings(const Settings& more) {
  Settings all = {{"optimizer.name", "signsgd"},
                  {"optimizer.lr", "0.01"},
                  {"exchange.codec", "demo:chunk=8,density=0.1"}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(SignSgd, TrainsWithDemoAndGivesAllRanksTheSameWeights) {
  const auto run = run_toy(3, {.settings = demo_settings({{"train.epochs", "6"}})});
  EXPECT_TRUE(same_bits(run[0].weights, run[2].weights));
  const auto still =
      run_toy(3, {.settings = demo_settings({{"train.epochs", "6"}, {"optimizer.lr", "0"}})});
  EXPECT_LT(run[0].summary.final_test_loss, 0.7 * still[0].summary.final_test_loss);
}

// All weights of a step move by the learning rate, whatever was sent of them.
TEST(SignSgd, EveryWeightMovesInTheFirstStep) {
  const Settings settings = demo_settings({{"train.max_steps", "1"}});
  const auto run = run_toy(2, {.settings = settings});
  const ToyNet before;
  const auto names = before.named_parameters();
  for (size_t i = 0; i < names.size(); ++i) {
    // Biases are sent as they are, and cosines over three rows are zero in the middle.
    if (names[i].value().dim() < 2 || names[i].key() == "output.weight") continue;
    const torch::Tensor moved = (run[0].weights[i] - names[i].value()).abs();
    EXPECT_NEAR(moved.max().item<double>(), 0.01, 1e-6);
    EXPECT_NEAR(moved.min().item<double>(), 0.01, 1e-6) << names[i].key();
  }
}

TEST(SignSgd, TheFlushGoesByTheSignToo) {
  torch::Tensor weights = torch::zeros({3});
  const SGDOptions options(0.5);
  SignSgd optimizer(
      {torch::optim::OptimizerParamGroup({weights}, std::make_unique<SGDOptions>(options))},
      options);
  weights.mutable_grad() = torch::tensor({3.0f, -7.0f, 0.0f});
  step_without_momentum(optimizer, 0.5);
  EXPECT_TRUE(weights.equal(torch::tensor({-0.5f, 0.5f, 0.0f})));
}

}  // namespace
}  // namespace thinwire
