// Adam for gradients whose values arrive late: each arrival counts for all steps that it waited.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <memory>

namespace thinwire {

// What Adam remembers of a parameter, and how many steps ago each of its values arrived.
struct ArrivalAdamState final : torch::optim::AdamParamState {
  torch::Tensor waited;  // steps, as fp32, which counts to 16 million; of the parameter's shape

  std::unique_ptr<torch::optim::OptimizerParamState> clone() const override {
    return std::make_unique<ArrivalAdamState>(*this);
  }
};

// A sparse codec with a memory sends a value of the gradient once in a while, as the sum a of what k steps brought.
// Adam's first moment would spread it over the steps that follow, some 1 / (1 - beta1) of them: what has waited would
// wait again. Here an arrival after k steps counts in the first moment as k steps with the gradient a / k. So what waited
// long moves the weight at once, by as much as Adam would in all, and what arrives often is averaged as in Adam:
//
//   m <- beta1^k m + (1 - beta1^k) a / k          when a value arrives
//   v <- beta2 v + (1 - beta2) a^2                in every step, as in Adam; a = 0 where nothing arrives
//   w <- w - k lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
//
// t is the parameter's number of steps. A value that is zero has not arrived: its weight and first moment stay. Where
// every value arrives in every step, k = 1 and this is Adam. Weight decay (that of Adam, added to the gradient) is known
// in every step and enters with k times its share.
//
// The step depends on the mean and on the state alone, so that all ranks take the same one.
class ArrivalAdam final : public torch::optim::Adam {
 public:
  using Adam::Adam;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace thinwire
