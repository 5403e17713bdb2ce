// StreamValues: a stream's tensors as one vector, in the processor's memory or in a device's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/device_work.h"
#include "exchange/step/tensor_table.h"

namespace thinwire {

class OwnerMemory;

// All spans are in the memory that it is made for. Not shared between threads.
class StreamValues {
 public:
  explicit StreamValues(std::vector<size_t> tensors) : tensors_(std::move(tensors)) {}
  virtual ~StreamValues() = default;

  // Indices of the tensors, in the order of the stream.
  const std::vector<size_t>& tensors() const noexcept { return tensors_; }

  // The values of the open tensors one after another, in one piece: in the memory of the tensor
  // itself where there is only one, else copied to memory that is allocated once.
  virtual std::span<float> join(TensorTable& table) = 0;

  // On a device: the memory to which every join copies, allocated now, whose values do not matter
  // until then. Empty where a tensor's own memory may do.
  virtual std::span<float> reserve() { return {}; }

  // What the last join returned goes back to the tensors.
  virtual void give(TensorTable& table) = 0;

  // Adds what of `owed` strays to `values`, of the whole stream.
  virtual void add_strays(OwnerMemory& owed, std::span<float> values) const = 0;

  virtual void fill(std::span<float> values, float with) const = 0;
  virtual void scale(std::span<float> values, float factor) const = 0;
  virtual double square_sum(std::span<const float> values) const = 0;

  // Returns when all of the above has happened: memories and encoders may have queues of their own.
  virtual void await() const {}

 private:
  std::vector<size_t> tensors_;
};

// Of tensors with `count` values in all; in the device's memory if there is `work`.
std::unique_ptr<StreamValues> make_stream_values(std::vector<size_t> tensors, size_t count,
                                                 const SharedWork& work);

}  // namespace thinwire
