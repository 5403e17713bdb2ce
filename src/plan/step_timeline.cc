// StepTimeline: its values, and the one that is assumed for a step of which only the length is
// known.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "exchange/layout/plan.h"
#include "thinwire/step_plan.h"

namespace thinwire {

size_t StepTimeline::values() const noexcept { return total_count(tensors); }

StepTimeline assumed_timeline(std::vector<TensorSpec> tensors, double step_seconds) {
  StepTimeline timeline{.tensors = std::move(tensors),
                        .ready_seconds = {},
                        .backward_seconds = step_seconds,
                        .compute_seconds = step_seconds};
  timeline.ready_seconds.resize(timeline.tensors.size());
  const auto all = static_cast<double>(timeline.values());
  const double forward = step_seconds / 3;
  double done = 0;  // values
  for (size_t index = timeline.tensors.size(); index-- > 0;) {
    done += static_cast<double>(timeline.tensors[index].count());
    timeline.ready_seconds[index] = forward + (step_seconds - forward) * (all > 0 ? done / all : 1);
  }
  return timeline;
}

}  // namespace thinwire
