// Tests of NovoGrad against its formula, and in the trainer.
// SPDX-License-Identifier: Apache-2.0
#include "train/novograd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;
using torch::optim::AdamOptions;
using torch::optim::OptimizerParamGroup;

NovoGrad novograd(const torch::Tensor& weights, AdamOptions options) {
  return NovoGrad({OptimizerParamGroup({weights}, std::make_unique<AdamOptions>(options))},
                  options);
}

AdamOptions options() { return AdamOptions(0.01).betas({0.8, 0.9}).eps(1e-3); }

torch::Tensor gradient(int step) {
  return torch::sin(torch::arange(1, 7).reshape({2, 3}) * (step + 1.0f)) * 4.0f;
}

// A loop in double precision does what the header says.
TEST(NovoGrad, FollowsItsFormula) {
  constexpr double kDecay = 0.05;
  torch::Tensor weights = torch::ones({2, 3});
  NovoGrad optimizer = novograd(weights, options().weight_decay(kDecay));
  std::vector<double> w(6, 1), m(6, 0);
  double v = 0;
  for (int step = 0; step < 20; ++step) {
    const torch::Tensor given = gradient(step);
    weights.mutable_grad() = given;
    optimizer.step();
    double square = 0;
    for (int i = 0; i < 6; ++i) square += std::pow(given.view(-1)[i].item<double>(), 2);
    v = step == 0 ? square : 0.9 * v + 0.1 * square;
    for (int i = 0; i < 6; ++i) {
      const double scaled = given.view(-1)[i].item<double>() / (std::sqrt(v) + 1e-3);
      m[i] = (step == 0 ? 0 : 0.8 * m[i]) + scaled + kDecay * w[i];
      w[i] -= 0.01 * m[i];
    }
  }
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(weights.view(-1)[i].item<double>(), w[i], 1e-6) << i;
}

TEST(NovoGrad, ForgetsTheScaleOfATensor) {
  torch::Tensor small = torch::zeros({2, 3}), large = torch::zeros({2, 3});
  NovoGrad of_small = novograd(small, options().eps(0));
  NovoGrad of_large = novograd(large, options().eps(0));
  for (int step = 0; step < 10; ++step) {
    small.mutable_grad() = gradient(step);
    large.mutable_grad() = gradient(step) * 1024.0f;
    of_small.step();
    of_large.step();
  }
  EXPECT_LT((small - large).abs().max().item<float>(), 1e-6f);
  EXPECT_GT(small.abs().max().item<float>(), 1e-2f);
}

TEST(NovoGrad, GradientsOfZerosChangeNothing) {
  torch::Tensor weights = torch::ones({2, 3});
  NovoGrad optimizer = novograd(weights, options().eps(0));
  weights.mutable_grad() = torch::zeros({2, 3});
  optimizer.step();
  EXPECT_TRUE(weights.equal(torch::ones({2, 3})));
  weights.mutable_grad() = gradient(1);
  optimizer.step();
  EXPECT_TRUE(weights.isfinite().all().item<bool>());
}

// A last layer that begins with zeros gives the layers before it no gradient in the first step.
TEST(NovoGrad, AfterGradientsOfZerosAStepIsAsLongAsAFirstOne) {
  torch::Tensor weights = torch::ones({2, 3}), fresh = torch::ones({2, 3});
  NovoGrad optimizer = novograd(weights, options().weight_decay(0));
  NovoGrad other = novograd(fresh, options().weight_decay(0));
  for (int i = 0; i < 3; ++i) {
    weights.mutable_grad() = torch::zeros({2, 3});
    optimizer.step();
  }
  weights.mutable_grad() = gradient(1);
  optimizer.step();
  fresh.mutable_grad() = gradient(1);
  other.step();
  EXPECT_TRUE(torch::allclose(weights, fresh));
}

TEST(NovoGrad, TrainsAndGivesAllRanksTheSameWeights) {
  const auto run = run_toy(2, {.settings = {{"optimizer.name", "novograd"},
                                            {"optimizer.lr", "0.02"},
                                            {"train.epochs", "6"},
                                            {"exchange.codec", "topk:density=0.2"}}});
  EXPECT_TRUE(same_bits(run[0].weights, run[1].weights));
  const auto still = run_toy(2, {.settings = {{"optimizer.name", "novograd"},
                                              {"optimizer.lr", "0"},
                                              {"train.epochs", "6"},
                                              {"exchange.codec", "topk:density=0.2"}}});
  EXPECT_LT(run[0].summary.final_test_loss, 0.8 * still[0].summary.final_test_loss);
}

TEST(NovoGrad, CannotHaveItsMomentumInAMemory) {
  const auto fault_of = [](const char* place) -> std::string {
    const auto faults = find_faults(toy_recipe({{"optimizer.name", "novograd"},
                                                {"exchange.codec", "topk"},
                                                {"exchange.momentum", place}})
                                        .options,
                                    {});
    return faults.empty() ? "" : faults.front().key + ": " + faults.front().status.message();
  };
  EXPECT_EQ(fault_of("auto"), "");
  EXPECT_THAT(fault_of("memory"), HasSubstr("cannot act in the memory"));
}

}  // namespace
}  // namespace thinwire
