// KeptVector: a vector kept between steps: the one that a step reads, and its replacement.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "core/aligned.h"
#include "thinwire/state.h"

namespace thinwire {

// Both start as zeros. A step writes `next` only, so that forgetting it takes nothing.
struct KeptVector {
  explicit KeptVector(size_t count) : now(count), next(count) {}

  void commit() noexcept { std::swap(now, next); }

  // Puts a saved array into `next`; commit it once all arrays of a state were there.
  Status read(const StateArrays& arrays, std::string_view name) {
    return copy_state(arrays, name, std::span<float>(next));
  }
  StateArray write(const char* name) const {
    return make_state(name, std::span<const float>(now), OnResize::kOwedToMean);
  }

  AlignedVector<float> now;
  AlignedVector<float> next;
};

}  // namespace thinwire
