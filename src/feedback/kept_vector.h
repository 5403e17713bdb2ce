// KeptVector: a vector kept between steps: the one that a step reads, and its replacement.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "feedback/memory_place.h"
#include "thinwire/state.h"

namespace thinwire {

// Both start as zeros, in the memory of one place. A step writes `next` only, so that forgetting it
// takes nothing.
class KeptVector {
 public:
  explicit KeptVector(size_t count, SharedPlace place = on_processor())
      : place_(std::move(place)), vectors_{place_->zeros(count), place_->zeros(count)} {
    now = vectors_[0].values;
    next = vectors_[1].values;
  }
  KeptVector(const KeptVector&) = delete;
  KeptVector& operator=(const KeptVector&) = delete;

  void commit() noexcept { std::swap(now, next); }

  // Puts a saved array into `next`; commit it once all arrays of a state were there.
  Status read(const StateArrays& arrays, std::string_view name) {
    std::vector<float> values(next.size());
    if (Status status = copy_state(arrays, name, std::span<float>(values)); !status) return status;
    place_->store(values, next);
    return Status::ok();
  }
  StateArray write(const char* name) const {
    std::vector<float> values(now.size());
    place_->fetch(now, values);
    return make_state(name, std::span<const float>(values), OnResize::kOwedToMean);
  }

  // Adds weight x values, of the processor's memory, to `now`.
  void add(float weight, std::span<const float> values) {
    std::vector<float> sum(now.size());
    place_->fetch(now, sum);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * values[i];
    place_->store(sum, now);
  }

  MemoryPlace& place() const noexcept { return *place_; }
  size_t held_bytes() const noexcept { return now.size_bytes() + next.size_bytes(); }

  std::span<float> now;
  std::span<float> next;

 private:
  SharedPlace place_;
  MemoryPlace::Vector vectors_[2];
};

}  // namespace thinwire
