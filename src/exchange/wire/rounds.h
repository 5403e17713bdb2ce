// Rounds: runs the messages by which ranks agree on scales, positions or factors before they
// encode.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "exchange/step/step_context.h"
#include "exchange/wire/active_stream.h"
#include "exchange/wire/float_reduction.h"
#include "exchange/wire/root_message.h"
#include "exchange/wire/round_plan.h"

namespace thinwire {

// The rounds of some streams, one after another, step after step. Streams of one codec, and plain
// ones, whose values may ride in the first round of means. The root of a round is number step mod m
// of the m ranks that take part in the step.
//
// A step is begin, join of every stream, then advance until done. A rank that has nothing to offer,
// because its values are not finite or it was told something corrupt, takes part to the end with
// flagged frames; the fault is noted, and nothing is adopted. Not shared between threads.
class Rounds {
 public:
  // Streams in the order of their indices. Tags `tag` and `tag + 1` belong to the rounds.
  Rounds(StepContext& context, std::vector<ActiveStream*> streams, bool with_plain, int tag);

  void begin();

  // Stream number `member` is prepared: its offer is made.
  void join(size_t member);

  // Goes as far as it can without waiting; returns whether it got anywhere.
  bool advance();
  bool done() const noexcept { return joined_ == streams_.size() && round_ == layout().size(); }

  // After done: this rank lacks something that was to be agreed on; the step will be skipped.
  bool spoilt() const noexcept { return spoilt_; }

  // A transfer that it waits for, for errors; null when it waits for none.
  const Transfer* awaited() const noexcept;

 private:
  using Part = RoundPart;
  using Layout = std::vector<RoundPlan>;

  const Layout& layout() const noexcept { return layouts_[context_.call.step % 2]; }
  const RoundPlan& plan() const noexcept { return layout()[round_]; }
  bool from_root() const noexcept { return plan().combine == Round::Combine::kFromRoot; }
  size_t root() const noexcept {
    return context_.attendance.participant(context_.call.step % context_.attendance.count());
  }
  std::span<float> floats() noexcept;

  void open_round();
  void offer(const Part& part);
  void launch();
  void adopt();
  void adopt_frames();
  FrameHeader header(const ActiveStream& stream) const noexcept;

  StepContext& context_;
  const std::vector<ActiveStream*> streams_;
  std::array<Layout, 2> layouts_;  // of even and of odd steps
  FloatReduction reduction_;
  RootMessage message_;
  Buffer floats_;
  size_t message_size_ = 0;
  size_t round_ = 0;
  size_t joined_ = 0;
  bool spoilt_ = false;
};

}  // namespace thinwire
