// The loop of libtorch's optimisers: over groups, over the parameters that have a gradient.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

namespace thinwire {

// What Optimizer::step does around the step itself: evaluates the closure, if there is one, and
// calls take(weights, options) for every parameter with a gradient, without recording gradients.
// Returns the closure's loss.
template <typename GroupOptions, typename Take>
torch::Tensor step_parameters(torch::optim::Optimizer& optimizer,
                              const torch::optim::Optimizer::LossClosure& closure,
                              const Take& take) {
  const torch::NoGradGuard no_grad;
  torch::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  for (torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    const auto& options = static_cast<const GroupOptions&>(group.options());
    for (torch::Tensor& weights : group.params())
      if (weights.grad().defined()) take(weights, options);
  }
  return loss;
}

}  // namespace thinwire
