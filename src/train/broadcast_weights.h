// Makes all ranks begin with the same network.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/group.h"
#include "train/named_tensors.h"

namespace thinwire {

// Gives every rank rank 0's parameters and buffers. Called by all ranks; throws Error(kMismatch) on
// all of them, naming the first difference, when names, types or sizes differ, and
// Error(kUnsupported), naming it, for a tensor that is not contiguous in the processor's memory.
void broadcast_weights(const torch::nn::Module& module, Group& group);

}  // namespace thinwire
