// RememberedRow: what a rule remembers of a step for the next one (Remembers, vector_rule.h), of
// one stream.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "core/aligned.h"
#include "thinwire/state.h"

namespace thinwire {

// One number for each value, the same on all ranks. Two buffers that commit swaps; rollback has
// nothing to undo.
class RememberedRow final : public Stateful {
 public:
  RememberedRow(size_t count, float first) : committed_(count, first), next_(count) {}

  std::span<const float> values() const noexcept { return committed_; }

  // What is remembered of the step under way, all of which is written before commit.
  std::span<float> next() noexcept { return next_; }
  void commit() noexcept { committed_.swap(next_); }

  bool shares_state() const noexcept override { return true; }
  StateArrays save() const override;
  Status load(const StateArrays& arrays) override;

 private:
  AlignedVector<float> committed_;
  AlignedVector<float> next_;
};

}  // namespace thinwire
