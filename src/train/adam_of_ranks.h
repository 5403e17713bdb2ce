// AdamOfRanks: Adam without a first moment, whose second moments ranks find together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <vector>

namespace thinwire {

//   d = decay w,   g = what arrived + d
//   w <- w - lr g / (max(sqrt(v + d^2), |g| / kMostRates) + eps)
//
// where v is the second moment of gradients that SecondMoments gives. In Adam the decay is a part of
// the gradient, and so its square of the second moment. The maximum bounds a step at
// kMostRates learning rates. Adam's own bound is (1 - beta1) / sqrt(1 - beta2) of them, or 3.2 at the
// usual betas [Kingma & Ba, arXiv:1412.6980, section 2.1]. A sparse codec sends the gradients of
// many steps at once, and v may have seen none of them.
//
// v is saved as Adam's exp_avg_sq. There is no exp_avg.
class AdamOfRanks final : public torch::optim::Adam {
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
