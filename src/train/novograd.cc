// NovoGrad: the step of one parameter, for all parameters in turn.
// SPDX-License-Identifier: Apache-2.0
#include "train/novograd.h"

#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <tuple>
#include <vector>

#include "thinwire/codec.h"
#include "train/parameter_steps.h"
#include "train/run_device.h"

namespace thinwire {
namespace {

using torch::optim::AdamOptions;

void take_step(torch::Tensor& weights, const AdamOptions& options, NovoGradState& state) {
  const auto [beta1, beta2] = options.betas();
  // measure adds in the same order on every processor, unlike libtorch's norm.
  const torch::Tensor values = moved(weights.grad(), torch::kCPU);
  const double square =
      measure({values.const_data_ptr<float>(), static_cast<size_t>(values.numel())}).square_sum;
  // The first gradient that is not zero begins the mean: among zeros it would count as little.
  state.square = state.square == 0 ? square : beta2 * state.square + (1 - beta2) * square;
  const double scale = state.square == 0 ? 1 : 1 / (std::sqrt(state.square) + options.eps());
  if (!state.momentum.defined()) state.momentum = torch::zeros_like(weights);
  state.momentum.mul_(beta1).add_(weights.grad(), scale);
  if (options.weight_decay() != 0) state.momentum.add_(weights, options.weight_decay());
  weights.sub_(state.momentum, options.lr());
}

}  // namespace

NovoGrad::NovoGrad(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                   const AdamOptions& defaults)
    : Optimizer(groups, std::make_unique<AdamOptions>(defaults)) {}

torch::Tensor NovoGrad::step(LossClosure closure) {
  return step_parameters<AdamOptions>(
      *this, closure, [&](torch::Tensor& weights, const AdamOptions& options) {
        auto& slot = state_[weights.unsafeGetTensorImpl()];
        if (!slot) slot = std::make_unique<NovoGradState>();
        take_step(weights, options, static_cast<NovoGradState&>(*slot));
      });
}

}  // namespace thinwire
