// NovoGrad [Ginsburg et al., arXiv:1905.11286]: momentum of gradients that each tensor's norm has scaled.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

namespace thinwire {

// What NovoGrad remembers of a parameter.
struct NovoGradState final : torch::optim::OptimizerParamState {
  torch::Tensor momentum;  // of the parameter's shape
  double square = 0;       // the second moment: one number for the whole tensor

  std::unique_ptr<torch::optim::OptimizerParamState> clone() const override {
    return std::make_unique<NovoGradState>(*this);
  }
};

// For each parameter w with gradient g (arXiv:1905.11286, Algorithm 1):
//
//   v <- beta2 v + (1 - beta2) |g|^2                   in the first step v <- |g|^2
//   m <- beta1 m + g / (sqrt(v) + epsilon) + decay w   in the first step m <- what is added
//   w <- w - lr m
//
// |g| is the Euclidean norm of the whole tensor, and v is kept in double. So a value that arrives late, as the sum of what
// several steps brought, does not change by how much the following values of its position are scaled. A tensor whose
// gradients have all been zero so far is not scaled. Options are those of libtorch's Adam: lr, betas, eps, weight_decay.
//
// The step depends on the mean and on the state alone, so that all ranks take the same one.
class NovoGrad final : public torch::optim::Optimizer {
 public:
  NovoGrad(const std::vector<torch::optim::OptimizerParamGroup>& groups,
           const torch::optim::AdamOptions& defaults);

  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace thinwire
