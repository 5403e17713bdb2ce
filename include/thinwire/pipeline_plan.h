// Plans of pipelines: stages, micro-batches, what crosses the cuts, and exchanges among several
// pipelines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "thinwire/boundary.h"
#include "thinwire/step_plan.h"

namespace thinwire {

struct PlannedStage {
  double forward_seconds = 0;  // of a micro-batch
  double backward_seconds = 0;
  std::vector<TensorSpec> tensors;  // its weights
};

// What crosses one cut, in either direction. The spec says how many samples a micro-batch has.
struct PlannedCut {
  BoundarySpec forward, backward;
  double auxiliary_bytes = 0;  // of the variables of decoupled stages, at either side of the cut
};

struct PlannedPipeline {
  std::vector<PlannedStage> stages;
  std::vector<PlannedCut> cuts;  // one fewer
  size_t micro_batches = 1;
  bool even =
      true;  // all have as many samples; else they are taken to be as long as the longest, and bytes are estimates
  std::string order = "1f1b";     // or "fill-drain"; or "decoupled", a step that is not serial
  ExchangeOptions exchange = {};  // of gradients, among the ranks that have the same stage
  double optimizer_seconds = 0;
};

struct PipelinePrediction {
  StepPrediction
      step;  // bytes: boundaries with their lengths, and exchanges, as StepReport::sent_bytes
  double idle_share = 0;        // of all ranks' time, until the last micro-batch is through
  double exchange_seconds = 0;  // after that: of the slowest stage

  struct Cut {
    double forward_bytes = 0, backward_bytes = 0;  // messages of one pipeline
  };
  std::vector<Cut> cuts;
};

// Plays the operations of all stages: rank r is stage r mod s of pipeline r / s. A stage computes,
// encodes and sends, and receives and decodes, each one thing after another, as the trainer's do;
// without a core of its own coding delays the computation. Pipelines exchange gradients when all
// micro-batches are through. Decoupled stages do not wait for what they receive; they decode what
// they send, too. Memories of boundaries cost what the exchange's do; aqsgd is past the first
// epoch.
//
// Fails for ranks that are not whole pipelines, machines that divide pipelines unevenly, and as
// make_boundary_sender and predict_step do.
Result<PipelinePrediction> predict_pipeline(const PlannedPipeline& pipeline,
                                            const PlanRequest& request, CostTable& costs);

}  // namespace thinwire
