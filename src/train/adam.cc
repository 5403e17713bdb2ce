// Adam: the step of one parameter, for all parameters in turn.
// SPDX-License-Identifier: Apache-2.0
#include "train/adam.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "kernel/adam_step.h"
#include "train/parameter_steps.h"
#include "train/tensor_floats.h"

namespace thinwire {

using torch::optim::AdamOptions;
using torch::optim::AdamParamState;

double Adam::square_share(const AdamParamState& state, double beta2) const {
  return 1 - std::pow(beta2, static_cast<double>(std::min(state.step(), freeze_after_)));
}

void Adam::take_step(torch::Tensor& weights, const AdamOptions& options,
                     AdamParamState& state) const {
  if (!state.exp_avg().defined()) {
    state.step(0);
    state.exp_avg(torch::zeros_like(weights));
    state.exp_avg_sq(torch::zeros_like(weights));
  }
  state.step(state.step() + 1);
  const bool frozen = state.step() > freeze_after_;
  const auto [beta1, beta2] = options.betas();
  const double mean_share = 1 - std::pow(beta1, static_cast<double>(state.step()));
  const double rate = options.lr() / mean_share;
  const double square_scale = std::sqrt(square_share(state, beta2));
  const double least = frozen ? 1 / (kMostRates * mean_share) : 0;
  torch::Tensor gradient = weights.grad();
  torch::Tensor mean = state.exp_avg(), square = state.exp_avg_sq();
  if (have_floats({weights, gradient, mean, square})) {
    const kernel::AdamNumbers numbers = {.beta1 = static_cast<float>(beta1),
                                         .rest1 = static_cast<float>(1 - beta1),
                                         .beta2 = frozen ? 1 : static_cast<float>(beta2),
                                         .rest2 = frozen ? 0 : static_cast<float>(1 - beta2),
                                         .rate = static_cast<float>(rate),
                                         .square_scale = static_cast<float>(square_scale),
                                         .epsilon = static_cast<float>(options.eps()),
                                         .least = static_cast<float>(least),
                                         .decay = static_cast<float>(options.weight_decay())};
    kernel::adam_step(numbers, floats_of(gradient), floats_of(mean), floats_of(square),
                      floats_of(weights));
    return;
  }
  if (options.weight_decay() != 0) gradient = gradient.add(weights, options.weight_decay());
  mean.mul_(beta1).add_(gradient, 1 - beta1);
  if (!frozen) square.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
  torch::Tensor root = square.sqrt().div_(square_scale);
  if (frozen) root = torch::maximum(root, mean.abs().mul_(least));
  weights.addcdiv_(mean, root.add_(options.eps()), -rate);
}

torch::Tensor Adam::step(LossClosure closure) {
  return step_parameters<AdamOptions>(
      *this, closure, [&](torch::Tensor& weights, const AdamOptions& options) {
        auto& slot = state_[weights.unsafeGetTensorImpl()];
        if (!slot) slot = std::make_unique<AdamParamState>();
        take_step(weights, options, static_cast<AdamParamState&>(*slot));
      });
}

}  // namespace thinwire
