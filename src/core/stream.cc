// TensorSpec and StreamSpec: sizes and names.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/stream.h"

#include <utility>

namespace thinwire {

std::string_view to_string(TensorKind kind) noexcept {
  switch (kind) {
    case TensorKind::kConvolution:
      return "convolution";
    case TensorKind::kLinear:
      return "linear";
    case TensorKind::kRecurrent:
      return "recurrent";
    case TensorKind::kEmbedding:
      return "embedding";
    case TensorKind::kBias:
      return "bias";
    case TensorKind::kNorm:
      return "norm";
    case TensorKind::kOther:
      return "other";
  }
  return "other";
}

size_t TensorSpec::count() const noexcept {
  size_t product = 1;
  for (uint64_t extent : shape) product *= extent;
  return product;
}

size_t StreamSpec::count() const noexcept {
  size_t sum = 0;
  for (const TensorSpec& tensor : tensors) sum += tensor.count();
  return sum;
}

StreamSpec single_tensor(TensorSpec tensor) {
  StreamSpec stream;
  stream.name = tensor.name;
  stream.tensors.push_back(std::move(tensor));
  return stream;
}

}  // namespace thinwire
