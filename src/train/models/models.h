// The networks that recipes name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/torch.h"
#include "train/sample_shape.h"

namespace thinwire {

// Setting what a model does not have is an error: 0 and "auto" stand for its own default.
struct ModelOptions {
  std::string name = "mlp";
  int64_t width = 0;      // channels of the first convolution, which others are multiples of
  int64_t hidden = 0;     // units of each hidden layer
  int64_t layers = 0;     // hidden layers
  int64_t embedding = 0;  // of learned vectors of characters or categories; default: one-hot
  std::string activation = "auto";  // dnn-speech: "relu" or "sigmoid"
  double dropout = 0;               // probability of zeroing a hidden unit in training
  uint64_t seed = 0;                // of the initial weights, which are a pure function of it
};

// In the order of the documentation.
std::vector<std::string_view> model_names();

// Throws Error: kUnknownName with the known names, kBadOption for a setting that the network does
// not have. `categories`: whether its samples have some (SampleShape).
void check_model(const ModelOptions& options, bool categories);

// The layers of a network that ranks can share (train/tensor/split_layer.h), all alike.
struct SharedLayers {
  int64_t layers = 0;
  int64_t heads = 0;     // of each layer, which the ranks must divide
  int64_t features = 0;  // of what ranks sum
};

// Absent for a network that has none. Throws Error(kBadOption) for settings that do not go
// together.
std::optional<SharedLayers> shared_layers(const ModelOptions& options);

// A network for samples of this shape, with initial weights. Throws Error: kUnknownName with the
// known names, kBadOption for settings it does not have, kMismatch for samples it cannot take.
Task make_model(const ModelOptions& options, const SampleShape& shape);

}  // namespace thinwire
