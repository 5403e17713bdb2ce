// TensorSteps: forward and backward passes on all ranks at once, and what they agree on at the end.
// SPDX-License-Identifier: Apache-2.0
#include "train/tensor/tensor_steps.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "train/broadcast_weights.h"
#include "train/draw_context.h"
#include "train/elapsed_time.h"
#include "train/finite_gradients.h"
#include "train/pipeline/stage_state.h"
#include "train/tensor/emulated_sums.h"
#include "train/tensor/part_gradients.h"

namespace thinwire {
namespace {

// What a rank saw of its own that was not finite.
struct Seen {
  TrainedSums::Spoiled sum = {};
  bool weights = false;  // their gradients
};

template <typename T>
std::vector<T> gather(Group& group, const T& mine) {
  std::vector<T> all(static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

// Where the first of them came from; what is not finite spreads to all that follows. The same on
// every rank.
std::optional<Fault> find_spoiled(Group& group, const TrainedSums& sums, bool weights) {
  const std::vector<Seen> all = gather(group, Seen{.sum = sums.spoiled(), .weights = weights});
  const auto rank_of = [&](auto found) { return static_cast<int>(found - all.begin()); };
  const auto first = std::min_element(all.begin(), all.end(), [](const Seen& a, const Seen& b) {
    return a.sum.place < b.sum.place;
  });
  if (first->sum.place != UINT64_MAX)
    return Fault{.code = ErrorCode::kNonFinite,
                 .rank = rank_of(first),
                 .stream = std::string(first->sum.backward ? "gradients" : "activations") + " of " +
                           sums.names()[first->sum.pair]};
  const auto bad =
      std::find_if(all.begin(), all.end(), [](const Seen& seen) { return seen.weights; });
  if (bad == all.end()) return std::nullopt;
  return Fault{
      .code = ErrorCode::kNonFinite, .rank = rank_of(bad), .stream = "gradients of weights"};
}

// How many replicas there are is known only here.
void check_batches(const TensorParallelOptions& options, const TensorPlan& plan, uint64_t batch,
                   uint64_t micro_batches) {
  const uint64_t parts = micro_batches * plan.replicas;
  if (batch % parts == 0) return;
  for (const std::string& memory : {options.forward_memory, options.backward_memory})
    if (find_boundary_memory(memory).value().entry->whole_batches)
      throw AgreedError(ErrorCode::kBadOption,
                        "tensor: memory '" + memory +
                            "' takes whole micro-batches only: a batch of " +
                            std::to_string(batch) + " must be a multiple of " +
                            std::to_string(parts) + " (micro-batches x replicas)");
}

}  // namespace

TensorSteps::TensorSteps(const TrainingContext& context, const TensorParallelOptions& options,
                         const TensorPlan& plan, const RankParts& parts,
                         const ExchangeOptions& exchange, Store& store, uint64_t first_step)
    : StepTaker(context),
      options_(options),
      plan_(plan),
      parts_(parts),
      seed_(static_cast<uint64_t>(context.recipe.integer("train.seed"))),
      micro_batches_(static_cast<uint64_t>(context.recipe.integer("train.micro_batches"))),
      clip_norm_(context.recipe.number("clip.norm")),
      skipped_(exchange.max_skipped),
      sampler_(context.recipe, context.timetable),
      last_step_(first_step == 0 ? 0 : first_step - 1) {
  check_batches(options, plan, context.timetable.batch, micro_batches_);
  Group& group = context.group;
  ranks_ = group.split(static_cast<int>(plan_.replica));
  peers_ = group.split(static_cast<int>(plan_.rank));
  exchange_ = std::make_unique<PartExchange>(parts_, plan_, group, *peers_, exchange, store);
  context.buffers.keep();  // a resumed rank's own, which the next line broadcasts over
  broadcast_weights(parts_.module(), *peers_);
  context.buffers.restore();
  store.open<StageState>("tensor/optimizer", [&] {
    return std::make_unique<StageState>(parts_.module(), context.optimizer);
  });

  const uint64_t share = largest_part(context.timetable.batch, plan_.replicas);
  const StepShape shape{.samples = largest_part(share, std::min(micro_batches_, share)),
                        .micro_batches = std::min(micro_batches_, share),
                        .seed = seed_,
                        .steps_per_epoch = context.timetable.steps_per_epoch,
                        .first_step = first_step};
  shapes_ = sum_shapes(group, plan_, context.task, context.data, 2);
  sums_ =
      std::make_unique<TrainedSums>(options_, plan_, context.task, shapes_, shape, *ranks_, store);
  counters_ = std::make_unique<TensorCounters>(plan_, context.task, sums_->names(), shapes_, shape,
                                               exchange_->streams());
}

StepOutcome TensorSteps::take(uint64_t number) {
  StepOutcome outcome;
  begin(number, outcome);
  last_step_ = number;
  RankCounters counters;
  try {
    const ElapsedTime watch;
    take_passes(number, outcome, counters);
    const uint64_t summed = sum_partial_gradients(parts_, *ranks_);
    counters.sent_bytes += summed;
    counters.dense_bytes += summed;
    counters.seconds = watch.seconds();
    const std::optional<Fault> fault =
        find_spoiled(context().group, *sums_, !gradients_are_finite(parts_.module()));
    if (clips_own())
      clip_gradients(parts_, *ranks_, clip_norm_ / std::sqrt(static_cast<double>(plan_.replicas)));
    outcome.report = exchange_->finish(/*skips=*/fault.has_value());
    if (fault) outcome.report.fault = *fault;
    end(outcome.report.skipped, counters, outcome);
  } catch (const AgreedError&) {  // the others have it too
    throw;
  } catch (const std::exception& error) {
    sums_->abort(error.what());
    throw;
  }
  return outcome;
}

void TensorSteps::take_passes(uint64_t number, StepOutcome& outcome, RankCounters& counters) {
  const SampleRange whole = context().timetable.batch_of(number);
  const SampleRange mine = whole.part(plan_.replica, plan_.replicas);
  const auto sampled = sampler_.ids(number, mine);
  const std::vector<uint64_t> ids(sampled.begin(), sampled.end());
  const FetchContext fetching_for{
      .training = true, .seed = seed_, .epoch = number / context().timetable.steps_per_epoch};
  outcome.samples = mine.size;
  const uint64_t passes = std::min(micro_batches_, mine.size);  // none without samples
  for (uint64_t pass = 0; pass < passes; ++pass) {
    const SampleRange part = SampleRange{.begin = 0, .size = mine.size}.part(pass, passes);
    const auto part_ids = std::span(ids).subspan(part.begin, part.size);
    ElapsedTime fetching;
    const Batch batch = context().data.fetch(part_ids, fetching_for);
    outcome.times.fetch += fetching.seconds();

    const ElapsedTime computing;
    const DrawScope draws({.seed = seed_,
                           .step = number,
                           .first = mine.begin - whole.begin + part.begin,
                           .rows = part.size});
    sums_->begin({.step = number, .micro_batch = pass, .ids = part_ids});
    torch::Tensor loss =
        context().task.loss(parts_.forward(batch.inputs, sums_->layers()), batch.targets);
    const auto samples = static_cast<double>(part.size);
    counters.loss += loss.item<double>() * samples;
    counters.samples += part.size;
    const double weight =
        samples * static_cast<double>(plan_.replicas) / static_cast<double>(whole.size);
    if (weight != 1) loss = loss * weight;
    loss.backward();
    outcome.times.compute += computing.seconds();
  }
  // The clock also ran while sums were made.
  for (const SumCounters& sum : sums_->counters())
    outcome.times.compute -= sum.wait + sum.compress + sum.decompress;
}

void TensorSteps::end(bool skipped, RankCounters& counters, StepOutcome& outcome) {
  const ElapsedTime updating;
  const std::vector<SumCounters> sums = sums_->counters();  // which both calls below clear
  if (skipped) {
    context().buffers.restore();
    sums_->rollback();
  } else {
    if (clip_norm_ > 0 && !clips_own()) clip_gradients(parts_, *ranks_, clip_norm_);
    context().optimizer.step();
    sums_->commit();
  }
  context().optimizer.zero_grad();
  outcome.times.update += updating.seconds();
  counters.sent_bytes += outcome.report.sent_bytes;
  counters.dense_bytes += outcome.report.dense_bytes;
  auto sum = counters_->gather(context().group, counters, sums, outcome.report);
  outcome.loss = sum.loss;
  outcome.pipeline = std::move(sum.pairs);

  skipped_.count(skipped, outcome.report.fault);
}

void TensorSteps::show_common() {
  context().buffers.keep();
  parts_.show_all(*ranks_);
}

void TensorSteps::judge_more(const Judge& judge, EvaluationEvent& event) {
  const StepShape shape{
      .samples = static_cast<size_t>(context().recipe.integer("train.evaluate_batch")),
      .micro_batches = 1,
      .seed = seed_,
      .steps_per_epoch = context().timetable.steps_per_epoch,
      .first_step = last_step_};
  const Task summed = summed_task(options_, plan_, context().task, shapes_, shape);
  show_common();
  judge_compressed(judge, summed, event);
  show_own();
}

}  // namespace thinwire
