// limit_of: what would shorten a step most if it cost nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "thinwire/step_plan.h"

namespace thinwire {

// The seconds of a step as `request` has it, or, with free_coding, if its coding took no time.
using PlaySeconds = std::function<double(const PlanRequest& request, bool free_coding)>;

// Plays the step without each cost in turn; the arithmetic is its limit if that is all but 5 % of
// `seconds`.
StepLimit limit_of(const PlaySeconds& play, const PlanRequest& request, double seconds,
                   double compute_seconds);

// A timeline has tensors and a time for each, which is before the backward pass ends: what came
// later would never be sent. Ranks fill machines.
Status check_timeline(const StepTimeline& timeline);
Status check_machines(const PlanRequest& request);

}  // namespace thinwire
