// The keys of the table tensor of a recipe.
// SPDX-License-Identifier: Apache-2.0
#include "train/recipe_tables.h"

namespace thinwire {

std::vector<OptionInfo> tensor_keys() {
  using enum OptionType;
  return {
      {.name = "tensor.ranks",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 1024,
       .help = "tensor parallelism: so many workers share the matrices of each block of gpt-mini; "
               "with a multiple of so many workers, several networks share each batch; 0: none"},
      {.name = "tensor.layers",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = kMany,
       .help = "blocks whose sums are compressed, counted from the back; 0: all"},
      {.name = "tensor.forward",
       .type = kText,
       .fallback = "fp32",
       .help = "codec of the activations that ranks sum"},
      {.name = "tensor.forward_memory",
       .type = kText,
       .fallback = "none",
       .help = "none, ef, efmixed:density= or ef21: docs/pipeline.md"},
      {.name = "tensor.backward",
       .type = kText,
       .fallback = "fp32",
       .help = "codec of the gradients of activations that ranks sum"},
      {.name = "tensor.backward_memory",
       .type = kText,
       .fallback = "none",
       .help = "none, ef, efmixed:density= or ef21"},
      {.name = "tensor.autoencoder",
       .type = kText,
       .fallback = "none",
       .help =
           "trained matrices around each compressed sum of activations: the values that are left "
           "of each position's features (32), or how many times fewer (4x)"}};
}

}  // namespace thinwire
