// Fully connected layers of one width, on all values of a sample at once.
//
//   mlp         two of 512 units with ReLU: 669,706 parameters on 28 x 28 images in 10 classes
//   dnn-speech  four of 1024 on an utterance's log-mel frames, as the BN50-DNN of AdaComp's speech
//               experiment in miniature: 5,781,514 parameters on 64 x 40 features in 10 classes
//
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <string>
#include <vector>

#include "train/models/builtin_models.h"

namespace thinwire {
namespace {

struct Plan {
  int64_t inputs;
  int64_t hidden;
  int64_t layers;
  int64_t classes;
  bool sigmoid;
  double dropout;
};

class FullyConnected final : public torch::nn::Module {
 public:
  explicit FullyConnected(const Plan& plan) : sigmoid_(plan.sigmoid), dropout_(plan.dropout) {
    for (int64_t i = 0; i < plan.layers; ++i) {
      const torch::nn::Linear layer(i == 0 ? plan.inputs : plan.hidden, plan.hidden);
      hidden_.push_back(register_module("hidden" + std::to_string(i + 1), layer));
    }
    output_ = register_module("output", torch::nn::Linear(plan.hidden, plan.classes));
  }

  torch::Tensor forward(const torch::Tensor& inputs) {
    torch::Tensor x = inputs.flatten(1);
    for (auto& layer : hidden_) {
      x = layer(x);
      x = drop(sigmoid_ ? torch::sigmoid(x) : torch::relu(x), dropout_, is_training());
    }
    return output_(x);
  }

 private:
  bool sigmoid_;
  double dropout_;
  std::vector<torch::nn::Linear> hidden_;
  torch::nn::Linear output_ = nullptr;
};

Task make_fully_connected(const ModelOptions& options, const SampleShape& shape, int64_t hidden,
                          int64_t layers) {
  if (options.activation != "auto" && options.activation != "relu" &&
      options.activation != "sigmoid")
    throw Error(ErrorCode::kBadOption, "model " + options.name + ": no activation '" +
                                           options.activation + "'; known: relu, sigmoid");
  return task_of(std::make_shared<FullyConnected>(Plan{.inputs = shape.count(),
                                                       .hidden = or_default(options.hidden, hidden),
                                                       .layers = or_default(options.layers, layers),
                                                       .classes = shape.classes,
                                                       .sigmoid = options.activation == "sigmoid",
                                                       .dropout = options.dropout}));
}

}  // namespace

Task make_mlp(const ModelOptions& options, const SampleShape& shape) {
  return make_fully_connected(options, shape, 512, 2);
}

Task make_dnn_speech(const ModelOptions& options, const SampleShape& shape) {
  return make_fully_connected(options, shape, 1024, 4);
}

}  // namespace thinwire
