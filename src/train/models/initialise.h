// Initial weights from the counter-based generator: libtorch's own is one per process, and ranks
// may be threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace thinwire {

// Draws every parameter anew from libtorch's default distribution for its layer; parameter i of the
// module takes sequence i of `seed`, so equal seeds give equal bits in every process and thread.
// REQUIRES: only libtorch's own layers own parameters.
void initialise(torch::nn::Module& module, uint64_t seed);

}  // namespace thinwire
