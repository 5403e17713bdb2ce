// AdamOfRanks: Adam without a first moment, whose second moments ranks find together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <vector>

#include "train/adam.h"

namespace thinwire {

//   d = decay w,   g = what arrived + d
//   w <- w - lr g / (max(sqrt(v + d^2), |g| / kMostRates) + eps)
//
// where v is the second moment of gradients that SecondMoments gives. In Adam the decay is a part of
// the gradient, and so its square of the second moment.
//
// v is saved as Adam's exp_avg_sq. There is no exp_avg.
class AdamOfRanks final : public torch::optim::Adam {
 public:
  using Adam::Adam;
  torch::Tensor step(LossClosure closure = nullptr) override;

  // Whether one of these parameters has no v yet, as at the beginning.
  bool lacks_moments(const std::vector<torch::Tensor>& parameters) const;

  // v of these parameters; zeros where there was none.
  std::vector<torch::Tensor> moments(const std::vector<torch::Tensor>& parameters);
};

}  // namespace thinwire
