// What is compressed over time: tensors, and the streams that group them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace thinwire {

// What a tensor does in its network. Methods choose by it: AdaComp's bin length, what stays dense.
enum class TensorKind : uint8_t {
  kConvolution,
  kLinear,
  kRecurrent,
  kEmbedding,
  kBias,
  kNorm,
  kOther,
};

// "convolution", "linear", ...
std::string_view to_string(TensorKind kind) noexcept;

struct TensorSpec {
  std::string name;             // unique in its model: the key of everything remembered about it
  std::vector<uint64_t> shape;  // outermost dimension first; values lie row-major, without gaps
  TensorKind kind = TensorKind::kOther;

  size_t count() const noexcept;  // product of the shape; 1 for a scalar
};

// One tensor, or several taken as one vector in this order, that share an encoder and a memory.
struct StreamSpec {
  std::string name;
  std::vector<TensorSpec> tensors;

  size_t count() const noexcept;
};

// A stream of one tensor, under the tensor's own name.
StreamSpec single_tensor(TensorSpec tensor);

}  // namespace thinwire
