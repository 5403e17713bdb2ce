// SignSgd: one parameter after another.
// SPDX-License-Identifier: Apache-2.0
#include "train/sign_sgd.h"

#include <torch/torch.h>

#include "train/parameter_steps.h"

namespace thinwire {

torch::Tensor SignSgd::step(LossClosure closure) {
  return step_parameters<torch::optim::SGDOptions>(
      *this, closure, [](torch::Tensor& weights, const torch::optim::SGDOptions& options) {
        torch::Tensor along = weights.grad().sign();
        if (options.weight_decay() != 0) along.add_(weights, options.weight_decay());
        weights.add_(along, -options.lr());
      });
}

}  // namespace thinwire
