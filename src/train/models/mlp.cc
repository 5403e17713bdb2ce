// Fully connected layers of one width, on all values of a sample at once.
//
//   mlp         two of 512 units with ReLU: 669,706 parameters on 28 x 28 images in 10 classes
//   dnn-speech  four of 1024 on an utterance's log-mel frames, as the BN50-DNN of AdaComp's speech
//               experiment in miniature: 5,781,514 parameters on 64 x 40 features in 10 classes
//
// Tables begin with a layer that turns categories into vectors.
//
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <string>
#include <vector>

#include "train/models/builtin_models.h"
#include "train/models/table_columns.h"

namespace thinwire {
namespace {

Layer hidden_layer(int64_t number, int64_t inputs, int64_t hidden, bool sigmoid, double dropout) {
  torch::nn::Linear linear(inputs, hidden);
  return {.name = "hidden" + std::to_string(number),
          .module = linear.ptr(),
          .forward = [=](const torch::Tensor& x) mutable {
            const torch::Tensor y = linear(x.flatten(1));
            return drop(sigmoid ? torch::sigmoid(y) : torch::relu(y), dropout,
                        linear->is_training());
          }};
}

Task make_fully_connected(const ModelOptions& options, const SampleShape& shape, int64_t hidden,
                          int64_t layers) {
  if (options.activation != "auto" && options.activation != "relu" &&
      options.activation != "sigmoid")
    throw Error(ErrorCode::kBadOption, "model " + options.name + ": no activation '" +
                                           options.activation + "'; known: relu, sigmoid");
  hidden = or_default(options.hidden, hidden);
  layers = or_default(options.layers, layers);
  std::vector<Layer> all;
  int64_t inputs = shape.count();
  if (!shape.categories.empty()) {
    all.push_back(table_columns(shape, options.embedding));
    inputs = count_values(shape, options.embedding);
  }
  for (int64_t i = 1; i <= layers; ++i)
    all.push_back(hidden_layer(i, i == 1 ? inputs : hidden, hidden, options.activation == "sigmoid",
                               options.dropout));
  torch::nn::Linear output(hidden, shape.classes);
  all.push_back({.name = "output",
                 .module = output.ptr(),
                 .forward = [=](const torch::Tensor& x) mutable { return output(x); }});
  return make_sequence(std::move(all));
}

}  // namespace

Task make_mlp(const ModelOptions& options, const SampleShape& shape) {
  return make_fully_connected(options, shape, 512, 2);
}

Task make_dnn_speech(const ModelOptions& options, const SampleShape& shape) {
  return make_fully_connected(options, shape, 1024, 4);
}

}  // namespace thinwire
