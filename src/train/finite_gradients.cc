// Checks gradients in one pass if all are finite: a value that is not makes the sum so, too.
// SPDX-License-Identifier: Apache-2.0
#include "train/finite_gradients.h"

#include <torch/torch.h>

#include <cmath>

namespace thinwire {

bool gradients_are_finite(const torch::nn::Module& module) {
  for (const torch::Tensor& parameter : module.parameters()) {
    const torch::Tensor& gradient = parameter.grad();
    if (gradient.defined() && !std::isfinite(gradient.sum().item<float>()) &&
        !gradient.isfinite().all().item<bool>())
      return false;
  }
  return true;
}

}  // namespace thinwire
