// AddScattered: adds kept values of a stream to its tensors where they lie.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exchange/step/tensor_table.h"

namespace thinwire {

// For one frame, whose decoder calls it with positions that ascend, from one call to the next as
// well.
class AddScattered {
 public:
  // REQUIRES: table and tensors outlive this.
  AddScattered(TensorTable& table, const std::vector<size_t>& tensors, float weight)
      : table_(table), tensors_(tensors), weight_(weight), sum_(table.values(tensors.front())) {}

  void operator()(std::span<const uint32_t> positions, std::span<const float> values) {
    const float weight = weight_;  // a member might be among what sum_ changes
    for (size_t i = 0; i < positions.size(); ++i) {
      while (positions[i] - begin_ >= sum_.size()) {
        if (tensor_ + 1 == tensors_.size()) return;  // past the end: decoders never show that
        begin_ += sum_.size();
        sum_ = table_.values(tensors_[++tensor_]);
      }
      sum_[positions[i] - begin_] += weight * values[i];
    }
  }

 private:
  TensorTable& table_;
  const std::vector<size_t>& tensors_;
  float weight_;
  size_t tensor_ = 0;     // that the next position lies in or after: place in tensors_,
  size_t begin_ = 0;      // where it begins in the stream,
  std::span<float> sum_;  // and its values
};

}  // namespace thinwire
