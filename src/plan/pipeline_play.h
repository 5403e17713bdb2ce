// play_pipeline(): simulates the operations of all stages of all pipelines, and their messages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "pipeline/stage_schedule.h"
#include "plan/boundary_cost.h"
#include "thinwire/step_plan.h"

namespace thinwire {

struct PipelinePlay {
  std::vector<StageTimes> stages;
  std::vector<BoundaryCost> forward, backward;  // of each cut
  size_t micro_batches = 1;
  PipelineOrder order = PipelineOrder::kOneFOneB;
  size_t replicas = 1;
};

struct PlayedPipeline {
  double seconds = 0;       // until the last message has been sent, and decoded
  double idle_share = 0;    // of all ranks' time until then, in which they do not compute
  double wire_seconds = 0;  // of the rank that sends longest
};

PlayedPipeline play_pipeline(const PipelinePlay& pipeline, const PlanRequest& request);

}  // namespace thinwire
