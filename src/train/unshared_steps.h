// Measures a rank's own arithmetic in a step: when each gradient is complete, and when the step
// ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/options.h"
#include "thinwire/step_plan.h"
#include "thinwire/torch.h"

namespace thinwire {

// Takes `steps` steps of one of `ranks` ranks, after two that do not count, and gives the median of
// each time. With no steps all times are 0. The task's weights move as in training. Throws
// Error(kBadOption), naming the key, if the recipe's network is cut into stages.
StepTimeline measured_timeline(const Options& recipe, Task task, const TaskData& data, int ranks,
                               int steps);

}  // namespace thinwire
