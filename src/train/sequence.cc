// Runs the layers of a network one after the other.
// SPDX-License-Identifier: Apache-2.0
#include "train/sequence.h"

#include <torch/torch.h>

#include <utility>

#include "train/draw_context.h"

namespace thinwire {

torch::Tensor run_layer(const Layer& layer, size_t index, const torch::Tensor& inputs) {
  DrawScope::begin_layer(index);
  return layer.forward(inputs);
}

Task make_sequence(std::vector<Layer> layers) {
  Task task;
  task.module = std::make_shared<torch::nn::Module>();
  for (const Layer& layer : layers)
    if (layer.module) task.module->register_module(layer.name, layer.module);
  task.layers = std::move(layers);
  task.forward = [all = task.layers](const torch::Tensor& inputs) {
    torch::Tensor x = inputs;
    for (size_t i = 0; i < all.size(); ++i) x = run_layer(all[i], i, x);
    return x;
  };
  return task;
}

}  // namespace thinwire
