// Networks that are layers, one after the other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "thinwire/torch.h"

namespace thinwire {

// Layer number `index` on `inputs`. Dropout in it draws by that number, and so the same whichever
// layers the rank runs before it.
torch::Tensor run_layer(const Layer& layer, size_t index, const torch::Tensor& inputs);

}  // namespace thinwire
