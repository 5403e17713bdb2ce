// SignSgd: steps by the sign of the mean gradient, for the codec demo and others that send
// momentum.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

namespace thinwire {

// w <- w - lr (sign(g) + decay w), with sign(0) = 0. Weight decay is beside the sign, as in Lion
// and DeMo, so that it does not vote. It remembers nothing: momentum, if there is one, is in the
// memory of what was sent.
class SignSgd final : public torch::optim::SGD {
 public:
  using SGD::SGD;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace thinwire
