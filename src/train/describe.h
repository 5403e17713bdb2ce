// Describes a module's parameters: name, shape and kind of each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <vector>

#include "thinwire/stream.h"

namespace thinwire {

struct TrainableParameter {
  TensorSpec spec;
  torch::Tensor tensor;  // the module's own, not a copy
};

// Every parameter that requires a gradient, in the module's order; describe_parameters gives the
// same without the tensors. A tensor registered under several names (tied weights) is there once,
// under its first.
std::vector<TrainableParameter> trainable_parameters(const torch::nn::Module& module);

// What the weights that a module itself owns (not its children) are for; kOther for a container and
// for types that libtorch does not know.
TensorKind kind_of_module(const torch::nn::Module& module);

}  // namespace thinwire
