// Adam beside libtorch's: the same steps up to rounding, the same state, and weights that the
// kernel does not take.
// SPDX-License-Identifier: Apache-2.0
#include "train/adam.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

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

}  // namespace
}  // namespace thinwire
