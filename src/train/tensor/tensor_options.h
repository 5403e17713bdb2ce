// TensorParallelOptions: the section `tensor` of a recipe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "thinwire/boundary.h"
#include "thinwire/options.h"
#include "thinwire/trainer.h"

namespace thinwire {

struct TensorParallelOptions {
  size_t ranks = 0;   // that share each split layer; 0: no tensor parallelism
  size_t layers = 0;  // split layers that are compressed, counted from the back; 0: all
  std::string forward, forward_memory, backward, backward_memory;
  std::string autoencoder;  // of compressed layers: "none", or as code_width reads it
};

TensorParallelOptions tensor_options(const Options& recipe);

// A sum in one direction: all of its spec but the name, the shape, the numbers of samples and who
// sends. Layers that are not compressed send fp32.
BoundarySpec sum_options(const TensorParallelOptions& options, bool compressed, bool backward);

// What is wrong with the section, alone and with the rest of the recipe; at most one fault of each
// key.
std::vector<RecipeFault> find_tensor_faults(const Options& recipe);

}  // namespace thinwire
