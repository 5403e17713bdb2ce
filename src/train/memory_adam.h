// MemoryAdam: Adam whose first moment acts before the exchange and whose second moment is given.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <vector>

namespace thinwire {

//   g <- what arrived, with the first moment in it, + decay w
//   w <- w - lr g / (max(sqrt(v), |g| / kMostRates) + eps)
//
// where v is the second moment of gradients that SecondMoments gives. The maximum bounds a step at
// kMostRates learning rates. Adam's own bound is (1 - beta1) / sqrt(1 - beta2) of them, or 3.2 at the
// usual betas [Kingma & Ba, arXiv:1412.6980, section 2.1]. A sparse codec sends the gradients of
// many steps at once, and v may have seen none of them.
//
// v is saved as Adam's exp_avg_sq. Adam's exp_avg is the memory's.
class MemoryAdam final : public torch::optim::Adam {
 public:
  static constexpr double kMostRates = 10;

  using Adam::Adam;
  torch::Tensor step(LossClosure closure = nullptr) override;

  // Whether one of these parameters has no v yet, as at the beginning.
  bool lacks_moments(const std::vector<torch::Tensor>& parameters) const;

  // v of these parameters; zeros where there was none.
  std::vector<torch::Tensor> moments(const std::vector<torch::Tensor>& parameters);
};

}  // namespace thinwire
