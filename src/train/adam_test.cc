// Adam beside libtorch's: the same steps up to rounding, the same state, and weights that the
// kernel does not take.
// SPDX-License-Identifier: Apache-2.0
#include "train/adam.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "train/optimizer.h"
#include "train/recipe_parts.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamParamState;

const AdamParamState& state_of(torch::optim::Optimizer& optimizer, const torch::Tensor& weights) {
  return dynamic_cast<const AdamParamState&>(*optimizer.state().at(weights.unsafeGetTensorImpl()));
}

template <typename Optimizer>
torch::Tensor stepped(const AdamOptions& options, const torch::Tensor& from) {
  torch::manual_seed(3);
  torch::Tensor weights = from.clone().requires_grad_(true);
  torch::Tensor idle = from.clone().requires_grad_(true);  // never has a gradient
  Optimizer optimizer({weights, idle}, options);
  for (int step = 0; step < 20; ++step) {
    weights.mutable_grad() = torch::randn_like(weights);
    optimizer.step();
  }
  EXPECT_EQ(state_of(optimizer, weights).step(), 20);
  EXPECT_EQ(optimizer.state().count(idle.unsafeGetTensorImpl()), 0u);
  EXPECT_TRUE(idle.equal(from));
  return torch::stack({weights.detach(), state_of(optimizer, weights).exp_avg(),
                       state_of(optimizer, weights).exp_avg_sq()});
}

TEST(Adam, IsLibtorchsUpToRounding) {
  torch::manual_seed(1);
  const torch::Tensor from = torch::randn({37, 9});
  for (const double decay : {0.0, 0.1}) {
    const AdamOptions options = AdamOptions(0.01).betas({0.8, 0.99}).eps(1e-6).weight_decay(decay);
    const torch::Tensor ours = stepped<Adam>(options, from);
    EXPECT_TRUE(torch::allclose(ours, stepped<torch::optim::Adam>(options, from), 1e-5, 1e-6));
    EXPECT_GT((ours[0] - from).abs().max().item<float>(), 0.05);
  }
}

TEST(Adam, TakesLibtorchsStepWhereTheKernelCannot) {
  torch::manual_seed(1);
  const AdamOptions options = AdamOptions(0.01).weight_decay(0.1);
  const torch::Tensor turned = torch::randn({9, 37}).t();
  EXPECT_FALSE(turned.clone().is_contiguous());
  EXPECT_TRUE(torch::allclose(stepped<Adam>(options, turned),
                              stepped<torch::optim::Adam>(options, turned), 1e-5, 1e-6));
  const torch::Tensor half = torch::randn({37, 9}).to(torch::kBFloat16);
  EXPECT_TRUE(torch::allclose(stepped<Adam>(options, half),
                              stepped<torch::optim::Adam>(options, half), 1e-2, 1e-2));
}

// By plain loops, with one value whose gradient is 0 until the second moments are frozen.
TEST(Adam, KeepsItsSecondMomentAfterFreezing) {
  constexpr int kFrozen = 3, kCount = 40;
  constexpr double kRate = 0.01, kBeta2 = 0.96, kEpsilon = 1e-6, kDecay = 0.05;
  for (const double beta1 : {0.0, 0.8})
    for (const bool turned : {false, true}) {  // turned weights are not the kernel's
      torch::manual_seed(2);
      torch::Tensor weights = torch::randn({8, 5});
      if (turned) weights = torch::randn({5, 8}).t();
      weights[0][0] = 0;
      weights.requires_grad_(true);
      const std::vector<torch::optim::OptimizerParamGroup> groups = {
          torch::optim::OptimizerParamGroup({weights})};
      Adam optimizer(groups,
                     AdamOptions(kRate).betas({beta1, kBeta2}).eps(kEpsilon).weight_decay(kDecay),
                     kFrozen);
      std::vector<double> w(kCount), m(kCount), v(kCount);
      const auto flat = [](const torch::Tensor& t) { return t.detach().reshape({kCount}); };
      for (int i = 0; i < kCount; ++i) w[i] = flat(weights)[i].item<double>();
      for (int step = 1; step <= 9; ++step) {
        torch::Tensor gradient = torch::randn({8, 5}) * (step > kFrozen ? 30 : 1);
        gradient[0][0] = step > kFrozen ? 30 : 0;
        weights.mutable_grad() = turned ? gradient.t().contiguous().t() : gradient;
        optimizer.step();
        for (int i = 0; i < kCount; ++i) {
          const double g = flat(gradient)[i].item<double>() + kDecay * w[i];
          m[i] = beta1 * m[i] + (1 - beta1) * g;
          if (step <= kFrozen) v[i] = kBeta2 * v[i] + (1 - kBeta2) * g * g;
          const double mean = m[i] / (1 - std::pow(beta1, step));
          double root = std::sqrt(v[i] / (1 - std::pow(kBeta2, std::min(step, kFrozen))));
          if (step > kFrozen) root = std::max(root, std::abs(mean) / 10);
          w[i] -= kRate * mean / (root + kEpsilon);
          EXPECT_NEAR(flat(weights)[i].item<double>(), w[i], 2e-5) << step << ' ' << i;
        }
      }
      EXPECT_LT(w[0], -0.5);  // six steps of 0.1, where v is 0
      EXPECT_TRUE(torch::allclose(flat(state_of(optimizer, weights).exp_avg_sq()),
                                  torch::tensor(v, torch::kFloat32), 1e-5, 1e-7));
    }
}

const Settings kFreezing = {{"optimizer.name", "adam"},
                            {"optimizer.lr", "0.01"},
                            {"optimizer.second_moment", "frozen"},
                            {"optimizer.freeze_after", "0.8"}};

// Of five steps an epoch has, four.
TEST(Adam, FreezesAfterTheEpochsOfTheRecipe) {
  const auto weights = [](const std::string& epochs, const std::string& second_moment) {
    Settings settings = kFreezing;
    settings.insert(settings.end(),
                    {{"train.epochs", epochs}, {"optimizer.second_moment", second_moment}});
    return run_toy(2, {.settings = settings})[0].weights;
  };
  EXPECT_TRUE(same_bits(weights("0.8", "frozen"), weights("0.8", "mean")));
  EXPECT_FALSE(same_bits(weights("1", "frozen"), weights("1", "mean")));
}

// A last step that moves along what is owed is divided by the frozen second moment.
TEST(Adam, ScalesWhatIsOwedByTheFrozenMoment) {
  torch::Tensor weights = torch::zeros({3}).requires_grad_(true);
  const std::vector<torch::optim::OptimizerParamGroup> groups = {
      torch::optim::OptimizerParamGroup({weights})};
  Adam optimizer(groups, AdamOptions(0.01).betas({0, 0.9}), 1);
  for (int step = 0; step < 5; ++step) {
    weights.mutable_grad() = torch::tensor({4.0f, -4.0f, 0.0f});
    optimizer.step();
  }
  const torch::Tensor before = weights.detach().clone();
  weights.mutable_grad() = torch::full({3}, 2.0);
  step_without_momentum(optimizer, 0.1);
  EXPECT_TRUE(torch::allclose(before - weights.detach(), torch::tensor({0.05f, 0.05f, 1.0f}), 1e-5,
                              1e-6));  // the last one by ten rates, where the moment is 0
}

TEST(Adam, OnlyAdamFreezes) {
  Settings settings = kFreezing;
  EXPECT_TRUE(find_faults(toy_recipe(settings).options, {}).empty());
  for (const char* other : {"sgd", "novograd"}) {
    settings[0].second = other;
    const auto faults = find_faults(toy_recipe(settings).options, {});
    ASSERT_EQ(faults.size(), 1u);
    EXPECT_EQ(faults[0].status.message(), "frozen is for optimizer.name = adam");
  }
}

}  // namespace
}  // namespace thinwire
