// Fully connected layers of one width, ReLU between them. By default two of 512 units: 669,706
// parameters on 28 x 28 images in 10 classes. SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <vector>

#include "train/models/builtin_models.h"

namespace thinwire {
namespace {

class Mlp final : public torch::nn::Module {
 public:
  Mlp(int64_t inputs, int64_t hidden, int64_t layers, int64_t classes, double dropout)
      : dropout_(dropout) {
    for (int64_t i = 0; i < layers; ++i) {
      hidden_.push_back(register_module("hidden" + std::to_string(i + 1),
                                        torch::nn::Linear(i == 0 ? inputs : hidden, hidden)));
    }
    output_ = register_module("output", torch::nn::Linear(hidden, classes));
  }

  torch::Tensor forward(const torch::Tensor& inputs) {
    torch::Tensor x = inputs.flatten(1);
    for (auto& layer : hidden_) x = drop(torch::relu(layer(x)), dropout_, is_training());
    return output_(x);
  }

 private:
  double dropout_;
  std::vector<torch::nn::Linear> hidden_;
  torch::nn::Linear output_ = nullptr;
};

}  // namespace

Task make_mlp(const ModelOptions& options, const SampleShape& shape) {
  return task_of(std::make_shared<Mlp>(shape.count(), or_default(options.hidden, 512),
                                       or_default(options.layers, 2), shape.classes,
                                       options.dropout));
}

}  // namespace thinwire
