// Steps of a pipeline: each rank computes one stage of the network, micro-batch after micro-batch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/store.h"
#include "train/pipeline/pipeline_counters.h"
#include "train/pipeline/pipeline_options.h"
#include "train/pipeline/pipeline_step.h"
#include "train/pipeline/stage_auxiliaries.h"
#include "train/pipeline/stage_boundaries.h"
#include "train/pipeline/stage_passes.h"
#include "train/pipeline/stage_plan.h"
#include "train/skipped_steps.h"
#include "train/step_taker.h"

namespace thinwire {

// The gradient of a step is that of the mean loss over the whole batch, whatever the sizes of
// micro-batches are. Several pipelines share a batch and, stage by stage, exchange their gradients
// when the last micro-batch has come back. Activations and gradients that are not finite travel on
// as such, so that no stage waits; all ranks then skip the step.
//
// With pipeline.schedule = decoupled, stages wait for each other in serial epochs only, and in
// steps with a sample that has no auxiliary variable. Each stage learns of a sample's variables in
// the same steps, so that all stages of a pipeline know which steps these are.
//
// Every rank has memory for all weights (they are built, tested and saved as one network), but
// gradients, optimiser state and activations of its own stage alone.
class PipelineSteps final : public StepTaker {
 public:
  // Begins with the weights of the module, which are the same on all ranks. The optimiser is over
  // all of them, and steps those that have a gradient. Throws what plan_stages, StageBoundaries and
  // make_exchange throw. Called by all ranks.
  PipelineSteps(const TrainingContext& context, const PipelineOptions& options,
                const ExchangeOptions& exchange, Store& store, uint64_t first_step);

  StepOutcome take(uint64_t step) override;
  const std::vector<StreamSpec>& streams() const override { return counters_->streams(); }
  bool keeps_optimizer() const override { return true; }

  void align_buffers() override;
  // The network without compression. With pipeline.norm_samples its batch norm has statistics that
  // are measured again without compression.
  void show_common() override;
  void show_own() override;

  // The network with the boundaries' codecs in it, and batch norm's statistics of training.
  void judge_more(const Judge& judge, EvaluationEvent& event) override;

 private:
  void check_batches() const;
  // Every stage's weights and buffers on all ranks; of buffers, the mean over pipelines.
  void gather_stages();
  PipelineStep step_of(uint64_t number);
  void end(PipelineStep& step, bool skipped, StepOutcome& outcome);

  const PipelineOptions options_;
  const uint64_t seed_;
  const uint64_t micro_batches_;
  const double clip_norm_;
  const uint64_t norm_samples_, evaluate_batch_;
  SkippedSteps skipped_;
  StagePlan plan_;
  Sampler sampler_;
  uint64_t last_step_;
  uint64_t warmup_steps_;
  std::unique_ptr<Group> pipe_, peers_;  // this pipeline; this stage of all pipelines
  std::shared_ptr<torch::nn::Module> stage_;
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<StageBoundaries> boundaries_;
  std::unique_ptr<StageAuxiliaries> auxiliaries_;  // null where stages are never decoupled
  std::unique_ptr<PipelineCounters> counters_;
  std::unique_ptr<StagePasses> passes_;
};

}  // namespace thinwire
