// Loads the weights with which training begins, from a file or an earlier run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "thinwire/torch.h"

namespace thinwire {

// `from` is a safetensors file, a checkpoint, or a folder with checkpoints, of which the newest
// counts. Throws Error, naming it: kIo when there is none, kCorrupt and kBadLength for what is
// damaged, kMismatch for weights that are absent or of another shape. Others than the module's are
// left alone.
void load_weights(const torch::nn::Module& module, const std::string& from);

}  // namespace thinwire
