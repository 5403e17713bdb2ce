// PipelineSteps: a step runs the schedule's operations, then all ranks agree whether it counts.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/pipeline_steps.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "train/describe.h"
#include "train/elapsed_time.h"
#include "train/finite_gradients.h"
#include "train/held_options.h"
#include "train/named_tensors.h"
#include "train/norm_statistics.h"
#include "train/pipeline/compressed_forward.h"
#include "train/pipeline/stage_faults.h"
#include "train/pipeline/stage_gradients.h"
#include "train/pipeline/stage_links.h"
#include "train/pipeline/stage_state.h"

namespace thinwire {
PipelineSteps::PipelineSteps(const TrainingContext& context, const PipelineOptions& options,
                             const ExchangeOptions& exchange, Store& store, uint64_t first_step)
    : StepTaker(context),
      options_(options),
      seed_(static_cast<uint64_t>(context.recipe.integer("train.seed"))),
      micro_batches_(static_cast<uint64_t>(context.recipe.integer("train.micro_batches"))),
      clip_norm_(context.recipe.number("clip.norm")),
      norm_samples_(static_cast<uint64_t>(context.recipe.integer("pipeline.norm_samples"))),
      evaluate_batch_(static_cast<uint64_t>(context.recipe.integer("train.evaluate_batch"))),
      skipped_(exchange.max_skipped),
      plan_(plan_stages(options, context.group, store, context.task, context.data, 2)),
      sampler_(context.recipe, context.timetable),
      last_step_(first_step == 0 ? 0 : first_step - 1) {
  warmup_steps_ = options.warmup_steps > 0
                      ? options.warmup_steps
                      : steps_of(options.warmup, context.timetable.steps_per_epoch);
  check_batches();
  Group& group = context.group;
  pipe_ = group.split(static_cast<int>(plan_.replica));
  peers_ = group.split(static_cast<int>(plan_.stage));

  stage_ = stage_module(context.task, plan_.begin(), plan_.end());
  context.buffers.keep();  // a resumed rank's own, which the next line broadcasts over
  parallel_ = std::make_unique<DataParallel>(*stage_, *peers_, store, held_options(exchange));
  context.buffers.restore();
  parallel_->exchange().set_step(first_step);
  parallel_->set_accumulating(true);  // nothing is sent before all stages know that the step counts
  store.open<StageState>("stage/optimizer",
                         [&] { return std::make_unique<StageState>(*stage_, context.optimizer); });

  const uint64_t share = largest_part(context.timetable.batch, plan_.replicas);
  const StepShape shape{.samples = largest_part(share, std::min(micro_batches_, share)),
                        .micro_batches = std::min(micro_batches_, share),
                        .seed = seed_,
                        .steps_per_epoch = context.timetable.steps_per_epoch,
                        .first_step = first_step};
  together(group, [&] {  // not every stage is beside every cut
    boundaries_ = std::make_unique<StageBoundaries>(options, plan_, context.task, shape, store);
    if (options.decoupling && plan_.stages > 1)
      auxiliaries_ = std::make_unique<StageAuxiliaries>(options, plan_, context.task, store);
  });
  counters_ = std::make_unique<PipelineCounters>(plan_, context.task, shape,
                                                 parallel_->exchange().streams());
  passes_ = std::make_unique<StagePasses>(this->context(), plan_, *boundaries_, auxiliaries_.get(),
                                          std::make_unique<StageLinks>(group, plan_), options.order,
                                          seed_);
}

void PipelineSteps::check_batches() const {
  const uint64_t parts = micro_batches_ * plan_.replicas;
  const Timetable& table = context().timetable;
  const bool whole = table.batch % parts == 0 && table.samples % table.batch == 0;
  for (const auto* memories : {&options_.forward_memory, &options_.backward_memory})
    for (const std::string& memory : *memories)
      if (!whole && find_boundary_memory(memory).value().entry->whole_batches)
        throw AgreedError(
            ErrorCode::kBadOption,
            "pipeline: memory '" + memory + "' takes whole micro-batches only: a batch of " +
                std::to_string(table.batch) + " must be a multiple of " + std::to_string(parts) +
                " (micro-batches x pipelines), and an epoch of batches (train.drop_last)");
  if (options_.decoupling && plan_.stages > 1 && plan_.replicas > 1 &&
      !context().recipe.flag("train.fixed_batches"))
    throw AgreedError(
        ErrorCode::kBadOption,
        "pipeline.schedule: each of " + std::to_string(plan_.replicas) +
            " pipelines has auxiliary variables of its own samples, and other samples "
            "in every epoch; choose as many workers as pipeline.stages, or set "
            "train.fixed_batches");
}

// The step before its passes.
PipelineStep PipelineSteps::step_of(uint64_t number) {
  PipelineStep step;
  step.number = number;
  step.warming_up = number < warmup_steps_;
  step.whole = context().timetable.batch_of(number);
  step.mine = step.whole.part(plan_.replica, plan_.replicas);
  const auto ids = sampler_.ids(number, step.mine);
  step.ids.assign(ids.begin(), ids.end());
  if (context().recipe.flag("train.fixed_batches")) step.batch = sampler_.batch_id(number);
  step.share = static_cast<double>(plan_.replicas) / static_cast<double>(step.whole.size);
  const uint64_t epoch = number / context().timetable.steps_per_epoch;
  step.fetching_for = {.training = true, .seed = seed_, .epoch = epoch};
  if (auxiliaries_) {
    // Between serial epochs a sample looks as it did in the last one, or variables would be those
    // of another picture.
    step.fetching_for.epoch = options_.decoupling->serial_epoch(epoch);
    step.decoupled = step.fetching_for.epoch != epoch && auxiliaries_->hold(step.ids);
  }
  const uint64_t passes = std::min(micro_batches_, step.mine.size);  // none without samples
  for (uint64_t pass = 0; pass < passes; ++pass)
    step.parts.push_back(SampleRange{.begin = 0, .size = step.mine.size}.part(pass, passes));
  step.passing.resize(passes);
  return step;
}

StepOutcome PipelineSteps::take(uint64_t number) {
  StepOutcome outcome;
  begin(number, outcome);
  last_step_ = number;
  PipelineStep step = step_of(number);
  if (step.warming_up && number % context().timetable.steps_per_epoch == 0)
    boundaries_->begin_epoch_of_warmup();
  try {
    passes_->run(step, outcome);
    step.spoiled.weights = !gradients_are_finite(*stage_);
    const std::optional<Fault> fault = find_spoiled_stage(context().group, plan_, step.spoiled);
    if (clips_own())
      clip_gradients(*stage_, *pipe_, clip_norm_ / std::sqrt(static_cast<double>(plan_.replicas)));
    if (fault) parallel_->exchange().abstain(Abstention::kSkipsStep);
    outcome.report = parallel_->finish();
    agree_on_exchange(context().group, plan_, outcome.report);
    // A step that counted for this stage and not for another is taken back, where it is held.
    parallel_->exchange().settle(!outcome.report.skipped);
    if (fault) outcome.report.fault = *fault;
    end(step, outcome.report.skipped, outcome);
  } catch (const AgreedError&) {  // the others have it too
    passes_->end();
    throw;
  } catch (const std::exception& error) {
    // Before the ids of this step go, which the threads of its links may still look at.
    passes_->end(error.what());
    step.throw_what_sending_threw();
    throw;
  }
  return outcome;
}

void PipelineSteps::end(PipelineStep& step, bool skipped, StepOutcome& outcome) {
  const ElapsedTime updating;
  if (skipped) {
    context().buffers.restore();
    boundaries_->rollback(step.warming_up);
    if (auxiliaries_) auxiliaries_->rollback();
  } else {
    if (clip_norm_ > 0 && !clips_own()) clip_gradients(*stage_, *pipe_, clip_norm_);
    context().optimizer.step();
    boundaries_->commit(step.warming_up);
    if (auxiliaries_) auxiliaries_->commit();
  }
  context().optimizer.zero_grad();
  outcome.times.update += updating.seconds();
  step.counters.sent_bytes += outcome.report.sent_bytes;
  step.counters.dense_bytes += outcome.report.dense_bytes;
  auto sum = counters_->gather(context().group, step.counters, outcome.report);
  sum.pipeline.warming_up = step.warming_up;
  if (step.decoupled) sum.pipeline.penalty = sum.penalty;
  outcome.loss = sum.loss;
  outcome.pipeline = std::move(sum.pipeline);

  skipped_.count(skipped, outcome.report.fault);
}

void PipelineSteps::align_buffers() { context().buffers.average(*peers_); }

void PipelineSteps::gather_stages() {
  context().buffers.keep();
  context().buffers.average(*peers_);
  for (size_t stage = 0; stage < plan_.stages; ++stage)
    for (size_t i = plan_.starts[stage]; i < plan_.starts[stage + 1]; ++i) {
      const Layer& layer = context().task.layers[i];
      if (!layer.module) continue;
      for (NamedTensor& weight : named_weights(*layer.module)) {
        weight.name.insert(0, layer.name + ".");
        pipe_->broadcast(bytes_of(weight), static_cast<int>(stage));
      }
    }
}

void PipelineSteps::show_common() {
  gather_stages();
  if (norm_samples_ > 0)
    measure_norms(context().group, context().task, context().data, norm_samples_, evaluate_batch_,
                  context().buffers);
}

void PipelineSteps::show_own() { context().buffers.restore(); }

void PipelineSteps::judge_more(const Judge& judge, EvaluationEvent& event) {
  const Task compressed = compressed_task(options_, plan_, context().task, evaluate_batch_,
                                          last_step_, context().timetable.steps_per_epoch);
  gather_stages();
  judge_compressed(judge, compressed, event);
  show_own();
}

}  // namespace thinwire
