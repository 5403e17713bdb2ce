// Forward, backward, exchange, clip, step.
// SPDX-License-Identifier: Apache-2.0
#include "train/step_taker.h"

#include <torch/torch.h>

#include <algorithm>

#include "train/draw_context.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/stopwatch.h"

namespace thinwire {

StepTaker::StepTaker(const Options& recipe, const Timetable& timetable, Group& group,
                     const Task& task, const Dataset& data, DataParallel& parallel,
                     OwnBuffers& buffers, torch::optim::Optimizer& optimizer)
    : recipe_(recipe),
      timetable_(timetable),
      group_(group),
      task_(task),
      data_(data),
      parallel_(parallel),
      buffers_(buffers),
      optimizer_(optimizer),
      sampler_(timetable, static_cast<uint64_t>(recipe.integer("train.seed"))),
      seed_(static_cast<uint64_t>(recipe.integer("train.seed"))),
      micro_batches_(static_cast<uint64_t>(recipe.integer("train.micro_batches"))),
      clip_norm_(recipe.number("clip.norm")) {}

StepOutcome StepTaker::take(uint64_t step) {
  StepOutcome outcome;
  outcome.learning_rate = learning_rate(recipe_, timetable_, step);
  set_learning_rate(optimizer_, outcome.learning_rate);
  buffers_.keep();
  backward(step, outcome);
  outcome.report = parallel_.finish();
  if (outcome.report.skipped) {
    buffers_.restore();
  } else {
    if (clip_norm_ > 0) torch::nn::utils::clip_grad_norm_(task_.module->parameters(), clip_norm_);
    optimizer_.step();
  }
  optimizer_.zero_grad();
  return outcome;
}

void StepTaker::backward(uint64_t step, StepOutcome& outcome) {
  const Slice whole = timetable_.batch_of(step);
  const Slice mine =
      whole.part(static_cast<uint64_t>(group_.rank()), static_cast<uint64_t>(group_.size()));
  const auto ids = sampler_.ids(step, mine);
  const FetchContext context{
      .training = true, .seed = seed_, .epoch = step / timetable_.steps_per_epoch};

  const uint64_t passes = std::min(micro_batches_, mine.size);  // none without samples
  for (uint64_t pass = 0; pass < passes; ++pass) {
    const Slice part = Slice{.begin = 0, .size = mine.size}.part(pass, passes);
    Stopwatch fetching;
    const Batch batch = data_.fetch(ids.subspan(part.begin, part.size), context);
    outcome.times.fetch += fetching.seconds();

    Stopwatch computing;
    const DrawScope draws({.seed = seed_,
                           .step = step,
                           .first = mine.begin - whole.begin + part.begin,
                           .rows = part.size});
    parallel_.set_accumulating(pass + 1 < passes);
    torch::Tensor loss = task_.loss(task_.forward(batch.inputs), batch.targets);
    const auto samples = static_cast<double>(part.size);
    outcome.loss += loss.item<double>() * samples / static_cast<double>(mine.size);
    // The exchange takes the mean over ranks, the step needs the mean over samples.
    const double weight =
        samples * static_cast<double>(group_.size()) / static_cast<double>(whole.size);
    if (weight != 1) loss = loss * weight;
    loss.backward();
    outcome.times.compute += computing.seconds();
  }
}

}  // namespace thinwire
