// StepTaker: fetches samples and runs forward pass, backward pass, clipping and optimiser.
// SPDX-License-Identifier: Apache-2.0
#include "train/step_taker.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "core/processor_time.h"
#include "train/draw_context.h"
#include "train/elapsed_time.h"
#include "train/optimizer.h"
#include "train/recipe_parts.h"
#include "train/schedule.h"

namespace thinwire {

StepTaker::StepTaker(const TrainingContext& context)
    : context_(context),
      sampler_(context.recipe, context.timetable),
      seed_(static_cast<uint64_t>(context.recipe.integer("train.seed"))),
      micro_batches_(static_cast<uint64_t>(context.recipe.integer("train.micro_batches"))),
      clip_norm_(context.recipe.number("clip.norm")),
      clips_own_(thinwire::clips_own(context.recipe)) {
  const auto rank = static_cast<size_t>(context.group.rank());
  const std::vector<double>& slow = context.recipe.numbers("run.slow");
  if (rank < slow.size()) slowness_ = slow[rank];
  const std::string& shards = context.recipe.text("data.shards");
  if (shards.empty()) return;
  shard_.emplace(context.timetable,
                 own_shard(context.group, context.data, shard_alpha(shards), seed_), rank,
                 static_cast<uint64_t>(context.group.size()), seed_);
}

std::span<const uint64_t> StepTaker::own_ids(uint64_t step, SampleRange mine) {
  return shard_ ? shard_->ids(step) : sampler_.ids(step, mine);
}

void StepTaker::begin(uint64_t step, StepOutcome& outcome) {
  outcome.learning_rate = learning_rate(context_.recipe, context_.timetable, step);
  set_learning_rate(context_.optimizer, outcome.learning_rate);
  context_.buffers.keep();
}

// A norm that is not finite leaves gradients that are not: the exchange finds them.
void StepTaker::clip_own() {
  const double limit = clip_norm_ / std::sqrt(static_cast<double>(context_.group.size()));
  torch::nn::utils::clip_grad_norm_(context_.task.module->parameters(), limit);
}

void StepTaker::clip_mean() {
  if (clip_norm_ > 0 && !clips_own_)
    torch::nn::utils::clip_grad_norm_(context_.task.module->parameters(), clip_norm_);
}

void StepTaker::end(bool skipped, StepOutcome& outcome) {
  const ElapsedTime updating;
  const ProcessorTime working;
  if (skipped) {
    context_.buffers.restore();
  } else {
    clip_mean();
    context_.optimizer.step();
  }
  context_.optimizer.zero_grad();
  outcome.times.update += updating.seconds();
  outcome.times.processor += working.seconds();
}

void StepTaker::backward(uint64_t step, MeanOver mean, StepOutcome& outcome) {
  const ProcessorTime working;
  const auto rank = static_cast<uint64_t>(context_.group.rank());
  const auto ranks = static_cast<uint64_t>(context_.group.size());
  const SampleRange whole = context_.timetable.batch_of(step);
  const SampleRange mine = whole.part(rank, ranks);
  const auto ids = own_ids(step, mine);
  const FetchContext fetching_for{
      .training = true, .seed = seed_, .epoch = step / context_.timetable.steps_per_epoch};
  const bool over_all = mean == MeanOver::kWholeBatch;
  const double copies = over_all ? static_cast<double>(ranks) : 1;
  const auto total = static_cast<double>(over_all ? whole.size : mine.size);

  outcome.samples = mine.size;
  const uint64_t passes = std::min(micro_batches_, mine.size);  // none without samples
  for (uint64_t pass = 0; pass < passes; ++pass) {
    const SampleRange part = SampleRange{.begin = 0, .size = mine.size}.part(pass, passes);
    ElapsedTime fetching;
    const Batch batch = context_.data.fetch(ids.subspan(part.begin, part.size), fetching_for);
    outcome.times.fetch += fetching.seconds();

    ElapsedTime computing;
    const DrawScope draws({.seed = seed_,
                           .step = step,
                           .first = mine.begin - whole.begin + part.begin,
                           .rows = part.size});
    set_accumulating(pass + 1 < passes);
    const torch::Tensor outputs = context_.task.forward(batch.inputs);
    torch::Tensor loss = context_.task.loss(outputs, targets_of(batch, outputs));
    const auto samples = static_cast<double>(part.size);
    outcome.loss += loss.item<double>() * samples / static_cast<double>(mine.size);
    const double weight = samples * copies / total;
    if (weight != 1) loss = loss * weight;
    const double forward = computing.seconds();
    // Before gradients leave, which they do inside the backward pass.
    std::this_thread::sleep_for(std::chrono::duration<double>((slowness_ - 1) * last_seconds_));
    ElapsedTime backward;
    loss.backward();
    last_seconds_ = forward + backward.seconds();
    outcome.times.compute += last_seconds_;
  }
  outcome.times.processor += working.seconds();
}

}  // namespace thinwire
