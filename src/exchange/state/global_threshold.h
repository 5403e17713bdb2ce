// GlobalThreshold: one threshold for all streams of a section, steered from stream to stream.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "exchange/state/magnitude_sketch.h"
#include "exchange/state/step_forecast.h"
#include "thinwire/codec.h"
#include "thinwire/state.h"

namespace thinwire {

// docs/global-threshold.md says how it is found and why. Every rank has one of its own, for its own
// signals, and no rank needs another's.
//
// A step is quota_for and sent for every stream, in an order that is the same on every run, then
// commit or rollback. What a stream may send is a function of the committed steps and of the streams
// before it in the step. Used by one thread.
class GlobalThreshold final : public Stateful {
 public:
  // Between two steps: how many values all streams together should keep. 0: the codec has no
  // target, and needs no threshold.
  void aim(size_t target) noexcept;

  // Takes a sample of a stream's signal, of which the codec should keep `target` values, and says
  // what may be sent. Absent if no threshold is known yet; the codec then selects in its own way.
  // `stream` is a number that no other stream has.
  std::optional<Quota> quota_for(std::span<const float> signal, size_t target, const Call& call,
                                 size_t stream);

  // The stream of the last quota keeps so many values.
  void sent(size_t kept) noexcept { kept_ += kept; }

  void commit() noexcept;
  void rollback() noexcept;

  StateArrays save() const override;
  Status load(const StateArrays& arrays) override;

 private:
  bool shares_hold() const noexcept;
  bool is_lost(double above) const noexcept;
  double sampled_above(float threshold) const noexcept;
  float threshold_now() noexcept;
  size_t most_now(size_t target) const noexcept;

  size_t target_ = 0;
  MagnitudeSketch sketch_;
  MagnitudeSketch::Start start_;  // of the search for the thresholds of this step's streams
  StepForecast forecast_;
  size_t shares_target_ = 0;        // the target of the step that the forecast learnt from last
  double correction_ = 1;           // factor of the target: the average is of older signals
  std::optional<float> threshold_;  // of a usual step; absent: none is known
  std::vector<float> sample_;

  // Of this step.
  size_t offered_ = 0;  // targets of the streams so far
  size_t values_ = 0;   // of the streams so far
  size_t each_ = 0;     // how many values one of the sample of the last stream stands for
  size_t kept_ = 0;
};

}  // namespace thinwire
