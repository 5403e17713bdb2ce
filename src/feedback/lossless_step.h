// LosslessStep: whether a step leaves nothing to a memory, because the codec is lossless and nothing waits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "feedback/kept_vector.h"
#include "thinwire/codec.h"

namespace thinwire {

// Of a memory whose vector of owed values is all zeros when nothing waits. Codec auto goes back to fp32 where nothing else
// pays, and its steps must then cost no more than without a memory.
class LosslessStep {
 public:
  // At every prepare of a step, of which the first decides. Reads `owed.now` at the first lossless step after others, and
  // stops at the first value that waits.
  bool begin(const Call& call, const KeptVector& owed) {
    if (std::exchange(begun_, true)) return leaves_nothing_;
    if (call.lossless && may_wait_) may_wait_ = owed.place().any_nonzero(owed.now);
    leaves_nothing_ = call.lossless && !may_wait_;
    return leaves_nothing_;
  }

  bool leaves_nothing() const noexcept { return leaves_nothing_; }

  // The step counts. Whether it left nothing, so that `owed.now` stays.
  bool commit() noexcept {
    begun_ = false;
    const bool left_nothing = std::exchange(leaves_nothing_, false);
    if (!left_nothing) may_wait_ = true;
    return left_nothing;
  }
  void rollback() noexcept { begun_ = leaves_nothing_ = false; }

  // `owed.now` is another.
  void reset() noexcept {
    rollback();
    may_wait_ = true;
  }

 private:
  bool begun_ = false;           // this step
  bool may_wait_ = false;        // vectors are zeros at first
  bool leaves_nothing_ = false;  // this step
};

}  // namespace thinwire
