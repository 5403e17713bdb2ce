// Copies the start weights by name.
// SPDX-License-Identifier: Apache-2.0
#include "train/start_weights.h"

#include <torch/torch.h>

#include <string>

#include "train/named_tensors.h"
#include "train/saved_model.h"

namespace thinwire {

void load_weights(const torch::nn::Module& module, const std::string& from) {
  const torch::NoGradGuard no_grad;
  SavedModel model;
  try {
    model = read_saved_model(from);
  } catch (const Error& error) {
    throw Error(error.code(), std::string("model.weights: ") + error.what());
  }
  for (const NamedTensor& weight : named_weights(module))
    if (const Status status = from_state(model.arrays, weight); !status)
      throw Error(status.code(), "model.weights: " + model.from + ": " + status.message());
}

}  // namespace thinwire
