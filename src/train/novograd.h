// NovoGrad [Ginsburg et al., arXiv:1905.11286]: momentum of gradients, each tensor scaled by its
// norm.
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

// For each parameter w with gradient g (arXiv:1905.11286, Algorithm 1), where m is 0 at first:
//
//   v <- beta2 v + (1 - beta2) |g|^2                   in the first step v <- |g|^2
//   m <- beta1 m + g / (sqrt(v) + epsilon) + decay w
//   w <- w - lr m
//
// |g| is the Euclidean norm of the whole tensor, and v is kept in double. With a sparse codec a
// value of g is the sum of several steps' gradients, or zero. Adam's second moment of that one
// position would follow it; the norm of the tensor hardly does. A tensor whose gradients have all
// been zero so far is not scaled. Options are those of libtorch's Adam: lr, betas, eps,
// weight_decay.
//
// The step depends on the mean and on the state alone, so that all ranks take the same one.
class NovoGrad final : public torch::optim::Optimizer {
 public:
  NovoGrad(const std::vector<torch::optim::OptimizerParamGroup>& groups,
           const torch::optim::AdamOptions& defaults);

  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace thinwire
