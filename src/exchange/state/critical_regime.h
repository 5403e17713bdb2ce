// CriticalRegime: Accordion's rule: decides from the mean gradients whether a stream is in a
// critical regime.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/codec_schedule.h"
#include "thinwire/state.h"
#include "thinwire/store.h"
#include "thinwire/stream.h"

namespace thinwire {

// Accordion [Agarwal et al., MLSys 2021]. With D the norm of the sum of the means that are
// delivered in a window, the last steps of an interval, and D' that of the interval before,
//
//   critical = |D' - D| >= eta D',
//
// and critical too where D' is 0 or none is known, as in the first interval. If an interval is at
// least two windows long, the first norm is that of the run's first window, so that the end of the
// first interval decides already.
//
// Every rank is delivered the same bits and adds them in the same order, so that all ranks decide
// the same and no message is needed. Only steps that count are counted. The sum is four bytes per
// value, and is there during a window only; then a step reads the mean, and reads and writes the
// sum. Used by one thread.
class CriticalRegime final : public Stateful {
 public:
  // Of `count` values. REQUIRES: 0 < window <= interval, in steps.
  CriticalRegime(size_t count, double eta, uint64_t interval, uint64_t window);

  bool critical() const noexcept { return critical_; }

  // A step that counts: add for all of the mean, whose part begins at value `begin`, then end_step.
  void add(std::span<const float> part, size_t begin);
  void end_step();

  StateArrays save() const override;
  bool shares_state() const noexcept override { return true; }
  Status load(const StateArrays& arrays) override;

 private:
  bool in_window() const noexcept;
  bool measures_first_window() const noexcept { return norm_ < 0 && 2 * window_ <= interval_; }
  double take_norm() noexcept;

  const size_t count_;
  const double eta_;
  const uint64_t interval_, window_;
  bool critical_ = true;
  uint64_t steps_ = 0;      // of this interval
  double norm_ = -1;        // of the window before; negative: none was measured
  std::vector<float> sum_;  // of this window; empty: nothing was added
};

// That of a stream in `step`, opened as "<stream>/regime"; null where the schedule has no accordion
// then. A regime whose eta or intervals were others starts afresh.
CriticalRegime* open_regime(const CodecSchedule& schedule, uint64_t step, uint64_t steps_per_epoch,
                            const StreamSpec& stream, Store& store);

}  // namespace thinwire
