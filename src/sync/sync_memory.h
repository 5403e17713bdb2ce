// SyncMemory: a synchroniser's counters, numbers and vectors, saved as one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/aligned.h"
#include "thinwire/state.h"

namespace thinwire {

class SyncMemory final : public Stateful {
 public:
  struct Vector {
    std::string name;
    AlignedVector<float> values;
  };
  struct Numbers {
    std::string name;
    std::vector<double> values;
    OnResize on_resize = OnResize::kCopy;
  };

  // As they are before the first step.
  SyncMemory(std::vector<Vector> vectors, std::vector<Numbers> numbers)
      : vectors_(std::move(vectors)), numbers_(std::move(numbers)) {}

  uint64_t steps = 0;   // local steps that this worker took
  uint64_t rounds = 0;  // communications that were begun

  // REQUIRES: it was declared.
  AlignedVector<float>& vector(std::string_view name);
  std::vector<double>& numbers(std::string_view name);

  bool loaded() const noexcept { return loaded_; }
  // Whether both have vectors and numbers of the same names and lengths.
  bool is_shaped_as(const SyncMemory& other) const noexcept;

  // XXH3 of all vectors: of those that must be the same on all ranks.
  uint64_t checksum() const;

  // At another number of ranks all get the mean of the vectors: where they were alike, they stay
  // so.
  StateArrays save() const override;
  Status load(const StateArrays& arrays) override;

 private:
  std::vector<Vector> vectors_;
  std::vector<Numbers> numbers_;
  bool loaded_ = false;
};

// `values` as the beginning of a vector.
inline AlignedVector<float> copy_of(std::span<const float> values) {
  return {values.begin(), values.end()};
}

}  // namespace thinwire
