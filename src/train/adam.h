// Adam [Kingma & Ba, arXiv:1412.6980] with the same bits on every processor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace thinwire {

// The most learning rates by which a step moves a weight, where its second moment may have seen none
// of the gradients. A sparse codec sends the gradients of many steps at once. Adam's own bound is
// (1 - beta1) / sqrt(1 - beta2), or 3.2 at the usual betas [arXiv:1412.6980, section 2.1].
inline constexpr double kMostRates = 10;

// libtorch's Adam, with its options (lr, betas, eps, weight_decay) and its state. Weights that are
// contiguous fp32 tensors on the processor take the step of kernel/adam_step.h: ranks on different
// processors keep the same weights, which they do not with libtorch's step, whose square roots come
// from MKL. Others, of GPUs and in bfloat16, take the same step by libtorch's operations.
//
// After `freeze_after` steps of a parameter, its second moment and the correction of its bias stay
// as they are [1-bit Adam, Tang et al., arXiv:2102.02888, Algorithm 1]. From then on kMostRates
// bounds its steps, since the second moment is 0 where no gradient had come (docs/memories.md, Adam:
// wider bounds).
class Adam final : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;
  Adam(const std::vector<torch::optim::OptimizerParamGroup>& groups,
       const torch::optim::AdamOptions& options, int64_t freeze_after)
      : torch::optim::Adam(groups, options), freeze_after_(freeze_after) {}

  torch::Tensor step(LossClosure closure = nullptr) override;

  // 1 - beta2^t, where t are the steps whose gradients the second moment of this state has seen.
  double square_share(const torch::optim::AdamParamState& state, double beta2) const;

 private:
  void take_step(torch::Tensor& weights, const torch::optim::AdamOptions& options,
                 torch::optim::AdamParamState& state) const;

  const int64_t freeze_after_ = std::numeric_limits<int64_t>::max();
};

}  // namespace thinwire
