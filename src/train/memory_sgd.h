// MemorySgd: SGD whose momentum of gradients acts before the exchange, in the memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

namespace thinwire {

// w <- w - lr (g + d), where g is the mean of what arrived, which has its momentum, and d that of
// the weight decay, which is the same on every rank and needs no exchange: d <- momentum d + (1 -
// dampening) decay w, d <- decay w in a parameter's first step; with Nesterov's form decay w +
// momentum d is added in the place of d. SGD is linear in what it is given, so that this is SGD
// with momentum and weight decay, to rounding, where g is what SGD's own momentum would make of
// gradients.
//
// d is saved as what it is: SGD's momentum_buffer.
class MemorySgd final : public torch::optim::SGD {
 public:
  using SGD::SGD;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace thinwire
