// The step of Adam in one pass over memory, with the same bits on every processor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace thinwire::kernel {

// The numbers of one step, for all values of a tensor. In step t of [Kingma & Ba, arXiv:1412.6980,
// Algorithm 1]:
struct AdamNumbers {
  float beta1 = 0;
  float rest1 = 1;  // 1 - beta1
  float beta2 = 0;
  float rest2 = 1;         // 1 - beta2
  float rate = 0;          // lr / (1 - beta1^t)
  float square_scale = 1;  // sqrt(1 - beta2^t)
  float epsilon = 0;
  float least = 0;  // of |m|, what a step is divided by at least
  float decay = 0;  // weight decay, which is part of the gradient
};

// For each value, by fp32 operations that are each rounded on their own:
//
//   g <- gradient + decay w
//   m <- beta1 m + rest1 g
//   v <- beta2 v + (rest2 g) g
//   w <- w - (rate m) / (max(sqrt(v) / square_scale, least |m|) + epsilon)
//
// So a weight moves by rate / least at most, and without this bound at least = 0.
// Square roots are correctly rounded, as IEEE 754 asks for. Those of libtorch come from MKL, whose
// last bit depends on the processor. REQUIRES: all four have the same length.
void adam_step(const AdamNumbers& numbers, std::span<const float> gradient, std::span<float> mean,
               std::span<float> square, std::span<float> weights) noexcept;

}  // namespace thinwire::kernel
