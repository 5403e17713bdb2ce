// Describes a recipe's pipeline for plans: stages with their measured times, and what crosses the
// cuts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/options.h"
#include "thinwire/pipeline_plan.h"
#include "thinwire/torch.h"

namespace thinwire {

// Of a recipe with pipeline.stages and `ranks` ranks, as recipe_pipeline says. The task's weights
// stay as they are. Throws Error(kBadOption) as the trainer does.
PlannedPipeline measured_pipeline(const Options& recipe, Task task, const TaskData& data, int ranks,
                                  int steps);

}  // namespace thinwire
