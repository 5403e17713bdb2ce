// LayerInputs: what linear and embedding layers take in while a network runs, seen by libtorch's
// observers of operations. The network is not changed and needs no hooks of its own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <cstddef>
#include <vector>

namespace thinwire {

struct LayerInput {
  size_t layer = 0;      // its place in `weights`
  torch::Tensor inputs;  // a copy: any leading dimensions x features, or an embedding's row numbers
};

// Sees the forward passes of its own thread while it lives; one at a time on a thread.
class LayerInputs {
 public:
  // The weights of torch::nn::Linear and torch::nn::Embedding modules, none of them twice.
  explicit LayerInputs(std::vector<torch::Tensor> weights);
  ~LayerInputs();
  LayerInputs(const LayerInputs&) = delete;
  LayerInputs& operator=(const LayerInputs&) = delete;

  // What was seen since the last call, in order. A layer that ran several times is there as often.
  std::vector<LayerInput> take();

 private:
  void see(const at::RecordFunction& operation);

  std::vector<torch::Tensor> weights_;
  std::vector<LayerInput> seen_;
  at::CallbackHandle handle_;
};

}  // namespace thinwire
