// AdamOfRanks: steps one parameter after another.
// SPDX-License-Identifier: Apache-2.0
#include "train/adam_of_ranks.h"

#include <torch/torch.h>

#include <algorithm>
#include <memory>

#include "kernel/adam_step.h"
#include "train/parameter_steps.h"
#include "train/tensor_floats.h"

namespace thinwire {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamParamState;

AdamParamState& state_of(torch::optim::Optimizer& optimizer, const torch::Tensor& weights) {
  auto& slot = optimizer.state()[weights.unsafeGetTensorImpl()];
  if (!slot) {
    auto state = std::make_unique<AdamParamState>();
    state->step(0);
    state->exp_avg_sq(torch::zeros_like(weights));
    slot = std::move(state);
  }
  return static_cast<AdamParamState&>(*slot);
}

void take_step(torch::Tensor& weights, const AdamOptions& options, AdamParamState& state) {
  state.step(state.step() + 1);
  torch::Tensor gradient = weights.grad();
  torch::Tensor square = state.exp_avg_sq();
  if (options.weight_decay() != 0) {
    const torch::Tensor decay = weights * options.weight_decay();
    gradient = gradient + decay;
    square = square + decay * decay;
  }
  if (have_floats({weights, gradient, square})) {
    const kernel::AdamNumbers numbers = {.beta1 = 0,
                                         .rest1 = 1,
                                         .beta2 = 1,
                                         .rest2 = 0,
                                         .rate = static_cast<float>(options.lr()),
                                         .square_scale = 1,
                                         .epsilon = static_cast<float>(options.eps()),
                                         .least = static_cast<float>(1 / kMostRates),
                                         .decay = 0};
    // The gradient has the place of a first moment, which becomes the gradient and nothing else.
    kernel::adam_step(numbers, floats_of(gradient), floats_of(gradient), floats_of(square),
                      floats_of(weights));
    return;
  }
  const torch::Tensor root = torch::maximum(square.sqrt(), gradient.abs().div_(kMostRates));
  weights.addcdiv_(gradient, root.add(options.eps()), -options.lr());
}

}  // namespace

torch::Tensor AdamOfRanks::step(LossClosure closure) {
  return step_parameters<AdamOptions>(*this, closure,
                                      [&](torch::Tensor& weights, const AdamOptions& options) {
                                        take_step(weights, options, state_of(*this, weights));
                                      });
}

bool AdamOfRanks::lacks_moments(const std::vector<torch::Tensor>& parameters) const {
  return std::any_of(parameters.begin(), parameters.end(), [&](const torch::Tensor& parameter) {
    return state_.find(parameter.unsafeGetTensorImpl()) == state_.end();
  });
}

std::vector<torch::Tensor> AdamOfRanks::moments(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& parameter : parameters)
    all.push_back(state_of(*this, parameter).exp_avg_sq());
  return all;
}

}  // namespace thinwire
