// Tensors that cross a boundary as spans of floats.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <span>

namespace thinwire {

// The values of a contiguous float32 tensor.
inline std::span<float> floats_of(const torch::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace thinwire
