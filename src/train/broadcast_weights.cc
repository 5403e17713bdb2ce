// Compares the ranks' networks, then broadcasts rank 0's weights.
// SPDX-License-Identifier: Apache-2.0
#include "train/broadcast_weights.h"

#include <torch/torch.h>

#include "thinwire/agreement.h"

namespace thinwire {
namespace {

// Names, types and sizes, one per line.
std::string describe_weights(const torch::nn::Module& module) {
  std::string text;
  for (const NamedTensor& weight : named_weights(module))
    text += weight.name + ": " + c10::toString(weight.tensor.scalar_type()) + ", " +
            std::to_string(weight.tensor.numel()) + " values\n";
  return text;
}

}  // namespace

void broadcast_weights(const torch::nn::Module& module, Group& group) {
  require_agreement(group, "weights", describe_weights(module));
  if (group.size() == 1) return;
  for (const NamedTensor& tensor : named_weights(module)) broadcast_tensor(group, tensor, 0);
}

}  // namespace thinwire
