// TensorTable: opens a step's tensors as fp32, and writes the results back.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/step/tensor_table.h"

#include <algorithm>
#include <string>

#include "core/check.h"
#include "kernel/half_float.h"

namespace thinwire {
namespace {

std::span<uint16_t> bfloats(const TensorView& view) {
  return {static_cast<uint16_t*>(view.data), view.count};
}

}  // namespace

void check_view(const TensorSpec& tensor, const TensorView& view, bool staged) {
  if (view.device != Device::kCpu && !staged)
    throw Error(ErrorCode::kUnsupported,
                "exchange: tensor '" + tensor.name +
                    "' is on CUDA; that needs ExchangeOptions::device, see make_cuda_memory");
  THINWIRE_CHECK(view.count == tensor.count(),
                 "exchange: tensor '" + tensor.name + "' has " + std::to_string(tensor.count()) +
                     " values, given were " + std::to_string(view.count));
  THINWIRE_CHECK(view.data != nullptr || view.count == 0,
                 "exchange: tensor '" + tensor.name + "' has no memory");
}

TensorTable::TensorTable(const std::vector<TensorSpec>& tensors) : entries_(tensors.size()) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    entries_[i].count = tensors[i].count();
    total_count_ += entries_[i].count;
  }
}

void TensorTable::open(size_t index, const TensorView& view) {
  Entry& entry = entries_[index];
  entry.view = view;
  if (view.data != nullptr && view.dtype == DType::kFloat32) {
    entry.values = {static_cast<float*>(view.data), entry.count};
    return;
  }
  entry.copy.resize(entry.count);
  entry.values = entry.copy;
  if (view.data == nullptr)
    std::fill(entry.copy.begin(), entry.copy.end(), 0.0f);
  else  // a NaN or Inf is found with all others, when the signal is formed
    static_cast<void>(kernel::from_bfloat(bfloats(view), entry.values));
}

void TensorTable::close(bool zeros) {
  for (Entry& entry : entries_) {
    const bool given = entry.view.data != nullptr;
    if (given && zeros && entry.view.device != Device::kCpu)
      device::fill(*work_, entry.values, 0.0f);
    else if (given && zeros)
      std::fill(entry.values.begin(), entry.values.end(), 0.0f);
    if (given && entry.view.dtype == DType::kBFloat16)
      kernel::to_bfloat_saturated(entry.values, std::as_writable_bytes(bfloats(entry.view)));
    entry.view = {};
    entry.values = {};
  }
}

}  // namespace thinwire
