// Fragments: how a model is cut into parts that are synchronised in turn.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/stream.h"

namespace thinwire {

enum class FragmentOrder { kStrided, kSequential };

// The layer of a tensor: its name up to the first part with a digit, and the numbers that follow at
// once ("layer2.0" of "layer2.0.conv1.weight"). A name without digits loses its last part.
std::string_view layer_of(std::string_view tensor);

// Indices in `tensors` by layer, layers in the order of their first tensors.
std::vector<std::vector<size_t>> layers_of(const std::vector<TensorSpec>& tensors);

// Indices in `tensors`, ascending, of each of `count` fragments. Of L layers, layer i is in
// fragment i mod count (strided) or floor(i count / L) (sequential) [Streaming DiLoCo, section
// 2.1]. REQUIRES: 0 < count <= the number of layers.
std::vector<std::vector<size_t>> cut_into_fragments(const std::vector<TensorSpec>& tensors,
                                                    size_t count, FragmentOrder order);

}  // namespace thinwire
