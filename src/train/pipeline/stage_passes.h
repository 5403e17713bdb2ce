// The forward and backward passes of one stage: what the schedule says, each as soon as its input
// is there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "pipeline/stage_schedule.h"
#include "train/pipeline/pipeline_step.h"
#include "train/pipeline/stage_auxiliaries.h"
#include "train/pipeline/stage_boundaries.h"
#include "train/pipeline/stage_links.h"
#include "train/pipeline/stage_plan.h"
#include "train/step_taker.h"

namespace thinwire {

// Moves activations and gradients over the links to the stages beside this one. A decoupled step
// computes with auxiliary variables, and takes what the other stages send behind its passes. All
// arguments but `links` must outlive it; `auxiliaries` is null where no step is decoupled.
class StagePasses {
 public:
  StagePasses(const TrainingContext& context, const StagePlan& plan, StageBoundaries& boundaries,
              StageAuxiliaries* auxiliaries, std::unique_ptr<StageLinks> links, PipelineOrder order,
              uint64_t seed)
      : context_(context),
        plan_(plan),
        boundaries_(boundaries),
        auxiliaries_(auxiliaries),
        links_(std::move(links)),
        order_(order),
        seed_(seed) {}

  // All passes of a step. Notes what of it was not finite, and what it took.
  void run(PipelineStep& step, StepOutcome& outcome);

  // No step follows. With a reason, the stages beside this one are told.
  void end() { links_.reset(); }
  void end(const char* why) {
    links_->abort(why);
    links_.reset();
  }

 private:
  void forward(PipelineStep& step, size_t micro_batch, StepOutcome& outcome);
  void backward(PipelineStep& step, size_t micro_batch, StepOutcome& outcome);
  torch::Tensor inputs_of(PipelineStep& step, size_t micro_batch);
  torch::Tensor gradient_of(PipelineStep& step, size_t micro_batch, const torch::Tensor& outputs);
  void take_what_came(PipelineStep& step);

  const TrainingContext& context_;
  const StagePlan& plan_;
  StageBoundaries& boundaries_;
  StageAuxiliaries* auxiliaries_;
  std::unique_ptr<StageLinks> links_;
  const PipelineOrder order_;
  const uint64_t seed_;
};

}  // namespace thinwire
