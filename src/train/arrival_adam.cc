// ArrivalAdam: steps one parameter after another, over the values that arrived.
// SPDX-License-Identifier: Apache-2.0
#include "train/arrival_adam.h"

#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <tuple>
#include <utility>

#include "train/parameter_steps.h"

namespace thinwire {
namespace {

using torch::optim::AdamOptions;

void take_step(torch::Tensor& weights, const AdamOptions& options, ArrivalAdamState& state) {
  const torch::Tensor& gradient = weights.grad();
  const double beta1 = std::get<0>(options.betas());
  const double beta2 = std::get<1>(options.betas());
  state.step(state.step() + 1);
  state.waited.add_(1);
  const auto steps = static_cast<double>(state.step());
  const double share1 = 1 - std::pow(beta1, steps);
  const double share2 = 1 - std::pow(beta2, steps);

  const torch::Tensor arrived = gradient.ne(0);
  const torch::Tensor k = state.waited.masked_select(arrived);
  const torch::Tensor before = weights.masked_select(arrived);
  torch::Tensor sum = gradient.masked_select(arrived);
  if (options.weight_decay() != 0) sum.add_(before * k, options.weight_decay());
  const torch::Tensor each = sum / k;
  const torch::Tensor mean =
      each.lerp(state.exp_avg().masked_select(arrived), torch::pow(beta1, k));
  state.exp_avg_sq().mul_(beta2);
  const torch::Tensor square =
      state.exp_avg_sq().masked_select(arrived).addcmul_(sum, sum, 1 - beta2);
  const torch::Tensor along =
      mean.mul(k).div_((square / share2).sqrt_().add_(options.eps())).mul_(options.lr() / share1);
  weights.masked_scatter_(arrived, before - along);
  state.exp_avg().masked_scatter_(arrived, mean);
  state.exp_avg_sq().masked_scatter_(arrived, square);
  state.waited.masked_fill_(arrived, 0);
}

}  // namespace

torch::Tensor ArrivalAdam::step(LossClosure closure) {
  return step_parameters<AdamOptions>(
      *this, closure, [&](torch::Tensor& weights, const AdamOptions& options) {
        auto& slot = state_[weights.unsafeGetTensorImpl()];
        if (!slot) {
          auto made = std::make_unique<ArrivalAdamState>();
          made->step(0);
          made->exp_avg(torch::zeros_like(weights));
          made->exp_avg_sq(torch::zeros_like(weights));
          made->waited = torch::zeros_like(weights);
          slot = std::move(made);
        }
        take_step(weights, options, static_cast<ArrivalAdamState&>(*slot));
      });
}

}  // namespace thinwire
