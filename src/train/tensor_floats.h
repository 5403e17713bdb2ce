// Tensors as spans of floats: what crosses a boundary, and what kernels step along.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace thinwire {

// The values of a contiguous float32 tensor in the processor's memory.
inline std::span<float> floats_of(const torch::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

// Whether all are such tensors.
inline bool have_floats(std::initializer_list<torch::Tensor> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const torch::Tensor& tensor) {
    return tensor.device().is_cpu() && tensor.scalar_type() == torch::kFloat32 &&
           tensor.is_contiguous();
  });
}

}  // namespace thinwire
