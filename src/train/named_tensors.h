// A module's tensors under their names, and tensors as saved arrays and back.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/state.h"

namespace thinwire {

struct NamedTensor {
  std::string name;
  torch::Tensor tensor;  // detached; shares memory with the module's
};

// Parameters that require a gradient, each once, in the module's order.
std::vector<NamedTensor> trained_weights(const torch::nn::Module& module);

// Buffers, in the module's order.
std::vector<NamedTensor> named_buffers(const torch::nn::Module& module);

// All parameters, trained or not, then all buffers: what a network is at a point in time.
std::vector<NamedTensor> named_weights(const torch::nn::Module& module);

// The same tensor where it is contiguous in the processor's memory, else a copy there. Throws
// Error(kUnsupported), naming it, if it has no memory of values.
NamedTensor on_processor(const NamedTensor& tensor);

// The memory of such a tensor.
std::span<std::byte> bytes_of(const NamedTensor& tensor);

// Rank `root`'s values become those of all ranks of the group, wherever the tensor is. Called by
// all ranks.
void broadcast_tensor(Group& group, const NamedTensor& tensor, int root);

// XXH3 over names and contents, in order.
uint64_t checksum_of(const std::vector<NamedTensor>& tensors);

// A line for each tensor, its name and checksum: where ranks compare such texts, the error names
// what differs.
std::string checksum_lines(const std::vector<NamedTensor>& tensors);

// A copy as a saved array. float32, float64, int64, uint8 and bool, and bfloat16 as float32;
// Error(kUnsupported) otherwise.
StateArray to_state(const NamedTensor& tensor, OnResize on_resize);

// Copies the array of the tensor's name into it. Fails, naming it, when it is absent or has another
// type or shape.
Status from_state(const StateArrays& arrays, const NamedTensor& tensor);

}  // namespace thinwire
