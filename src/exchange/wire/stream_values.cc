// Values of a stream in the processor's memory, and in a device's.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/wire/stream_values.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "exchange/state/owner_memory.h"
#include "kernel/axpy.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

// Calls piece(tensor, its values in `joined`), in the order of the stream.
template <typename Piece>
void for_pieces(TensorTable& table, const std::vector<size_t>& tensors, std::span<float> joined,
                const Piece& piece) {
  size_t begin = 0;
  for (const size_t tensor : tensors) {
    const size_t count = table.values(tensor).size();
    piece(tensor, joined.subspan(begin, count));
    begin += count;
  }
}

class ProcessorValues final : public StreamValues {
 public:
  ProcessorValues(std::vector<size_t> tensors, size_t count)
      : StreamValues(std::move(tensors)), count_(count) {}

  std::span<float> join(TensorTable& table) override {
    if (tensors().size() == 1) return table.values(tensors().front());
    joined_.resize(count_);
    for_pieces(table, tensors(), joined_, [&](size_t tensor, std::span<float> to) {
      const std::span<const float> from = table.values(tensor);
      std::copy(from.begin(), from.end(), to.begin());
    });
    return joined_;
  }

  void give(TensorTable& table) override {
    if (tensors().size() == 1) return;
    for_pieces(table, tensors(), joined_, [&](size_t tensor, std::span<float> from) {
      std::copy(from.begin(), from.end(), table.values(tensor).begin());
    });
  }

  void add_strays(OwnerMemory& owed, std::span<float> values) const override {
    owed.release_strays(values);
  }
  void fill(std::span<float> values, float with) const override { kernel::fill(values, with); }
  void scale(std::span<float> values, float factor) const override {
    kernel::scale(values, factor);
  }
  double square_sum(std::span<const float> values) const override {
    return measure(values).square_sum;
  }

 private:
  size_t count_;
  std::vector<float> joined_;
};

// Tensors that were not given, or in another format, are in the processor's memory.
class DeviceValues final : public StreamValues {
 public:
  DeviceValues(std::vector<size_t> tensors, size_t count, SharedWork work)
      : StreamValues(std::move(tensors)), count_(count), work_(std::move(work)) {}

  std::span<float> join(TensorTable& table) override {
    is_joined_ = tensors().size() > 1 || !table.on_device(tensors().front());
    if (!is_joined_) return table.values(tensors().front());
    for_pieces(table, tensors(), joined(), [&](size_t tensor, std::span<float> to) {
      const std::span<const float> from = table.values(tensor);
      if (table.on_device(tensor))
        device::copy(*work_, from, to);
      else
        work_->send(to.data(), std::as_bytes(from));
    });
    return joined();
  }

  std::span<float> reserve() override {
    return tensors().size() > 1 ? joined() : std::span<float>();
  }

  void give(TensorTable& table) override {
    if (!is_joined_) return;
    for_pieces(table, tensors(), joined(), [&](size_t tensor, std::span<float> from) {
      const std::span<float> to = table.values(tensor);
      if (table.on_device(tensor))
        device::copy(*work_, from, to);
      else
        work_->fetch(std::as_writable_bytes(to), from.data());
    });
  }

  void add_strays(OwnerMemory& owed, std::span<float> values) const override {
    if (!owed.has_strays()) return;
    std::vector<float> fetched(values.size());
    work_->fetch(std::as_writable_bytes(std::span(fetched)), values.data());
    owed.release_strays(fetched);
    work_->send(values.data(), std::as_bytes(std::span(fetched)));
  }
  void fill(std::span<float> values, float with) const override {
    device::fill(*work_, values, with);
  }
  void scale(std::span<float> values, float factor) const override {
    device::scale(*work_, values, factor);
  }
  double square_sum(std::span<const float> values) const override {
    work_->begin();
    return device::measure(*work_, values).square_sum;
  }
  void await() const override { work_->await(); }

 private:
  std::span<float> joined() {
    if (joined_ == nullptr) joined_ = std::make_unique<device::DeviceFloats>(work_, count_);
    return joined_->values();
  }

  size_t count_;
  SharedWork work_;
  bool is_joined_ = false;  // what the last join returned
  std::unique_ptr<device::DeviceFloats> joined_;
};

}  // namespace

std::unique_ptr<StreamValues> make_stream_values(std::vector<size_t> tensors, size_t count,
                                                 const SharedWork& work) {
  if (work == nullptr) return std::make_unique<ProcessorValues>(std::move(tensors), count);
  return std::make_unique<DeviceValues>(std::move(tensors), count, work);
}

}  // namespace thinwire
