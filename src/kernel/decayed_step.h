// SGD's step where the momentum of gradients is in a memory, in one pass over memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace thinwire::kernel {

// The numbers of one step, for all values of a tensor.
struct DecayedStep {
  float rate = 0;
  float decay = 0;     // weight decay, which has a momentum of its own
  float momentum = 0;  // of the decay
  float rest = 1;      // 1 - dampening
  bool nesterov = false;
};

// For each value, by fp32 operations that are each rounded on their own:
//
//   own <- decay w
//   d <- momentum d + rest own
//   w <- w - rate (gradient + d); with nesterov, w - rate (gradient + (own + momentum d))
//
// The same bits on every processor. REQUIRES: all three have the same length.
void decayed_step(const DecayedStep& numbers, std::span<const float> gradient,
                  std::span<float> velocity, std::span<float> weights) noexcept;

}  // namespace thinwire::kernel
