// TensorTable: gives access to the caller's tensors of a step as fp32 values, in place or through a
// copy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "thinwire/exchange.h"

namespace thinwire {

// Throws Error(kUnsupported) for memory on a device unless the exchange has one, `staged`, and Error(kContract) when the
// view does not fit the tensor.
void check_view(const TensorSpec& tensor, const TensorView& view, bool staged);

// fp32 tensors are worked on in place; bf16 ones, and zeros for those nobody gave, in a copy that
// is made once. Not shared between threads.
class TensorTable {
 public:
  explicit TensorTable(const std::vector<TensorSpec>& tensors);

  // This step's memory of a tensor; no data and a count means that nobody gave it.
  // REQUIRES: check_view accepts it.
  void open(size_t index, const TensorView& view);

  // The gradient of an open tensor, and the place for its mean.
  std::span<float> values(size_t index) noexcept { return entries_[index].values; }

  // Gives every tensor back to its owner: what values() holds, or zeros. Closes them all.
  void close(bool zeros);

  size_t size() const noexcept { return entries_.size(); }
  size_t total_count() const noexcept { return total_count_; }

 private:
  struct Entry {
    size_t count = 0;
    TensorView view;
    std::span<float> values;
    std::vector<float> copy;
  };

  std::vector<Entry> entries_;
  size_t total_count_ = 0;
};

}  // namespace thinwire
