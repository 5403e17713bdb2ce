// Tensors, and the streams that group them: the units that are compressed over time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace thinwire {

// The role of a tensor in its network. Methods depend on it: AdaComp's bin length, and which
// tensors are sent uncompressed.
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

// One tensor, or several in this order as one vector, that share an encoder and a memory.
struct StreamSpec {
  std::string name;
  std::vector<TensorSpec> tensors;

  size_t count() const noexcept;
};

// A stream of one tensor, under the tensor's own name.
StreamSpec single_tensor(TensorSpec tensor);

}  // namespace thinwire
