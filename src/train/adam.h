// Adam [Kingma & Ba, arXiv:1412.6980] with the same bits on every processor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

namespace thinwire {

// libtorch's Adam, with its options (lr, betas, eps, weight_decay) and its state. Weights that are
// contiguous fp32 tensors on the processor take the step of kernel/adam_step.h: ranks on different
// processors keep the same weights, which they do not with libtorch's step, whose square roots come
// from MKL. Others, of GPUs and in bfloat16, take the same step by libtorch's operations.
class Adam final : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace thinwire
