// A memory for each tensor of a stream, seen as one: such memories are the same whatever else
// travels with the tensor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/aligned.h"
#include "kernel/vector_moments.h"
#include "thinwire/feedback.h"

namespace thinwire {

// Of memories that keep no remainder: what is sent of a tensor depends on its own gradient alone.
// Saved by whoever owns them.
class PerTensor final : public Feedback {
 public:
  // In the stream's order, each of so many values; they must outlive this.
  explicit PerTensor(std::vector<std::pair<Feedback*, size_t>> memories)
      : memories_(std::move(memories)) {
    size_t count = 0;
    for (const auto& memory : memories_) count += memory.second;
    values_.resize(count);
  }

  Signal prepare(std::span<const float> gradient, const Call& call) override {
    auto to = values_.begin();
    for (const auto& [memory, count] : memories_) {
      const Signal part = memory->prepare(gradient.first(count), call);
      to = std::copy(part.values.begin(), part.values.end(), to);
      gradient = gradient.subspan(count);
    }
    return {.values = values_, .fresh = {}, .moments = kernel::moments(values_)};
  }
  void set_momentum(std::span<const Momentum> of_tensors) override {
    for (size_t i = 0; i < memories_.size(); ++i)
      memories_[i].first->set_momentum(of_tensors.subspan(i, 1));
  }
  std::span<float> rest() noexcept override { return {}; }
  void commit() override {
    for (const auto& memory : memories_) memory.first->commit();
  }
  void rollback() override {
    for (const auto& memory : memories_) memory.first->rollback();
  }

 private:
  std::vector<std::pair<Feedback*, size_t>> memories_;
  AlignedVector<float> values_;
};

}  // namespace thinwire
