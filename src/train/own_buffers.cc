// OwnBuffers: keeps, averages and saves a rank's buffers.
// SPDX-License-Identifier: Apache-2.0
#include "train/own_buffers.h"

#include <torch/torch.h>

#include <cstring>

namespace thinwire {
namespace {

bool is_float(const NamedTensor& buffer) { return buffer.tensor.scalar_type() == torch::kFloat32; }

}  // namespace

void OwnBuffers::keep() {
  if (kept_.empty())
    for (const NamedTensor& buffer : buffers_) kept_.push_back(torch::empty_like(buffer.tensor));
  for (size_t i = 0; i < kept_.size(); ++i) kept_[i].copy_(buffers_[i].tensor);
}

void OwnBuffers::restore() {
  for (size_t i = 0; i < kept_.size(); ++i) buffers_[i].tensor.copy_(kept_[i]);
}

void OwnBuffers::average(Group& group) {
  if (group.size() == 1) return;
  std::vector<float> mine;
  for (const NamedTensor& buffer : buffers_) {
    if (!is_float(buffer)) continue;
    const torch::Tensor here = on_processor(buffer).tensor;
    const auto* values = here.const_data_ptr<float>();
    mine.insert(mine.end(), values, values + here.numel());
  }
  if (mine.empty()) return;
  std::vector<float> all(mine.size() * static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));

  size_t at = 0;
  for (const NamedTensor& buffer : buffers_) {
    if (!is_float(buffer)) continue;
    torch::Tensor means = torch::empty(buffer.tensor.sizes());
    auto* values = means.mutable_data_ptr<float>();
    for (int64_t i = 0; i < means.numel(); ++i, ++at) {
      double sum = 0;
      for (size_t rank = 0; rank * mine.size() < all.size(); ++rank)
        sum += all[rank * mine.size() + at];
      values[i] = static_cast<float>(sum / group.size());
    }
    buffer.tensor.copy_(means);
  }
}

StateArrays OwnBuffers::save() const {
  StateArrays arrays;
  for (const NamedTensor& buffer : buffers_)
    arrays.push_back(to_state(buffer, is_float(buffer) ? OnResize::kOwedToMean : OnResize::kCopy));
  return arrays;
}

Status OwnBuffers::load(const StateArrays& arrays) {
  const StateArrays before = save();
  for (const NamedTensor& buffer : buffers_) {
    if (Status status = from_state(arrays, buffer); !status) {
      for (const NamedTensor& changed : buffers_) from_state(before, changed).or_throw();
      return status;
    }
  }
  return Status::ok();
}

}  // namespace thinwire
