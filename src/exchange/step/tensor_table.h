// TensorTable: gives access to the caller's tensors of a step as fp32 values, in place or through a
// copy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "device/device_work.h"
#include "thinwire/exchange.h"

namespace thinwire {

// Throws Error(kUnsupported) for memory on a device unless the exchange has one, `staged`, and
// Error(kContract) when the view does not fit the tensor.
void check_view(const TensorSpec& tensor, const TensorView& view, bool staged);

// fp32 tensors are worked on in place; bf16 ones, and zeros for those nobody gave, in a copy that
// is made once. Those in a device's memory stay there. Not shared between threads.
class TensorTable {
 public:
  explicit TensorTable(const std::vector<TensorSpec>& tensors);

  // What fills tensors in a device's memory; null where there are none.
  void set_work(SharedWork work) { work_ = std::move(work); }

  // This step's memory of a tensor; no data and a count means that nobody gave it.
  // REQUIRES: check_view accepts it.
  void open(size_t index, const TensorView& view);

  // The gradient of an open tensor, and the place for its mean.
  std::span<float> values(size_t index) noexcept { return entries_[index].values; }
  bool on_device(size_t index) const noexcept {
    return entries_[index].view.device != Device::kCpu;
  }

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
  SharedWork work_;
};

}  // namespace thinwire
