// Checks whether a network's gradients are finite.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

namespace thinwire {

// Whether all gradients that there are, of the module's parameters, are finite.
bool gradients_are_finite(const torch::nn::Module& module);

}  // namespace thinwire
