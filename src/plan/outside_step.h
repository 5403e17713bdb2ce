// OutsideStep: a step of codec auto whose sums another all-reduce forms.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/group.h"

namespace thinwire {

class OutsideStep {
 public:
  explicit OutsideStep(size_t tensors) : values_(tensors) {}

  // Throws Error(kContract) for a tensor that is there.
  void add(size_t tensor, std::span<float> values);

  // Sums become means, or zeros. The report counts what a ring of all ranks sends. Called by all
  // ranks of `channel`, each of which may ask to skip the step. Throws Error(kContract) if a tensor
  // is missing.
  StepReport finish(Group& channel, const std::vector<StreamSpec>& streams,
                    const std::vector<TensorSpec>& tensors, uint64_t step, bool asks_to_skip);

  bool empty() const noexcept { return count_ == 0; }

 private:
  void clear();

  std::vector<std::optional<std::span<float>>> values_;  // by tensor
  size_t count_ = 0;                                     // of those that are there
  std::chrono::steady_clock::time_point began_;          // when the first of them was there
};

}  // namespace thinwire
