// LosslessStep: whether a step leaves nothing to a memory, because the codec is lossless and
// nothing waits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "feedback/kept_vector.h"
#include "thinwire/codec.h"

namespace thinwire {

// Of a memory whose vector of owed values is all zeros when nothing waits. Codec auto goes back to
// fp32 where nothing else pays, and its steps must then cost no more than without a memory.
class LosslessStep {
 public:
  // At every prepare of a step: the answer stays the same until it ends. Reads `owed.now` at the
  // first lossless step after others, and on a processor stops at the first value that waits.
  void begin(const Call& call, const KeptVector& owed) {
    if (call.lossless && waiting_ == Waiting::kUnknown)
      waiting_ = owed.place().any_nonzero(owed.now) ? Waiting::kSome : Waiting::kNothing;
    leaves_nothing_ = call.lossless && waiting_ == Waiting::kNothing;
  }

  bool leaves_nothing() const noexcept { return leaves_nothing_; }

  // The step counts. Whether it left nothing, so that `owed.now` stays.
  bool commit() noexcept {
    const bool left_nothing = std::exchange(leaves_nothing_, false);
    if (!left_nothing) waiting_ = Waiting::kUnknown;
    return left_nothing;
  }
  void rollback() noexcept { leaves_nothing_ = false; }

  // `owed.now` is another.
  void reset() noexcept {
    leaves_nothing_ = false;
    waiting_ = Waiting::kUnknown;
  }

 private:
  enum class Waiting : uint8_t { kNothing, kSome, kUnknown };
  Waiting waiting_ = Waiting::kNothing;  // in `owed.now`, which is zeros at first
  bool leaves_nothing_ = false;          // this step
};

}  // namespace thinwire
