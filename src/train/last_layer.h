// LastLayer: gradients of the loss by the weights of a network's last linear layer, sample by
// sample, without a backward pass.
//
// With inputs a and outputs z = W a + b of that layer, cross entropy has the gradients r a^T by W
// and r by b, where r = softmax(z) - one-hot(label). So the product of two samples' gradients is (a
// . a' + 1)(r . r').
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include "thinwire/torch.h"

namespace thinwire {

// In double, a row per sample.
struct GradientFactors {
  torch::Tensor inputs;     // a, and a last column of ones where the layer has a bias
  torch::Tensor residuals;  // r
  torch::Tensor predicted;  // int64: the most likely class
};

// Products of all pairs of rows: of a's row i and b's row j in [i, j].
torch::Tensor gradient_products(const GradientFactors& a, const GradientFactors& b);

// Of each row with itself.
torch::Tensor gradient_squares(const GradientFactors& a);

// Changes the network's last layer while it lives, so that a forward pass returns the layer's
// inputs too; takes the weights as they are then. The network is in evaluation mode meanwhile.
class LastLayer {
 public:
  // Throws Error(kUnsupported) where the network has no linear layer. `task` must outlive it.
  explicit LastLayer(const Task& task);
  ~LastLayer();
  LastLayer(const LastLayer&) = delete;
  LastLayer& operator=(const LastLayer&) = delete;

  // Throws Error(kUnsupported) where the network's outputs are not those of its last linear layer,
  // one row per sample.
  GradientFactors factors(const Batch& batch) const;

 private:
  const Task& task_;
  bool training_;
  torch::nn::LinearImpl* layer_ = nullptr;  // of the task's module
  torch::Tensor weight_, bias_;             // its own
};

}  // namespace thinwire
