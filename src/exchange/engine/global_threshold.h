// GlobalThreshold: the threshold that all streams of a section have in a step, learnt from earlier steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "exchange/engine/magnitude_sketch.h"
#include "thinwire/codec.h"
#include "thinwire/state.h"

namespace thinwire {

// docs/global-threshold.md says how it is found and why. Every rank has one of its own, for its own
// signals, and no rank has to be told another's.
//
// A step is offer and sent for every stream, then commit or rollback. In a step the threshold is a
// function of the steps that were committed before, so that it does not depend on the order of streams.
// (The bound on what a step may send goes by what was sent before.) Used by one thread.
class GlobalThreshold final : public Stateful {
 public:
  // Between two steps: how many values the streams together should keep. 0: the codec has no target,
  // and no threshold is needed.
  void aim(size_t target) noexcept;

  // A stream's signal, of which the codec should keep `target` values, is about to be encoded: looks
  // at a sample of it, and says what may be sent. Absent where nothing is known yet: the codec then
  // selects in its own way. `stream` tells streams apart, whatever else there is.
  std::optional<Quota> offer(std::span<const float> signal, size_t target, const Call& call,
                             size_t stream);

  // That stream was encoded, and kept so many.
  void sent(size_t kept) noexcept { kept_ += kept; }

  void commit() noexcept;
  void rollback() noexcept;

  StateArrays save() const override;
  Status load(const StateArrays& arrays) override;

 private:
  size_t most_now(size_t target) const noexcept;

  size_t target_ = 0;
  MagnitudeSketch sketch_;
  double correction_ = 1;           // of the target, so that as many are kept as it says
  std::optional<float> threshold_;  // of this step; absent: none is known
  std::vector<float> sample_;

  // Of this step.
  size_t offered_ = 0;  // targets of the streams so far
  size_t kept_ = 0;
};

}  // namespace thinwire
