// TrainingRun: the steps of a run, and what ranks agree on before the first.
// SPDX-License-Identifier: Apache-2.0
#include "train/training_run.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "thinwire/agreement.h"
#include "train/broadcast_weights.h"
#include "train/describe.h"
#include "train/machine.h"
#include "train/optimizer.h"
#include "train/pipeline/pipeline_steps.h"
#include "train/recipe_text.h"
#include "train/shared_steps.h"

namespace thinwire {

int threads_of(const Options& recipe, const Group& group) {
  const auto given = static_cast<int>(recipe.integer("run.threads"));
  if (given != 0) return given;
  // Where mpirun binds ranks to cores, no more than those.
  return std::max(1, std::min(available_cores(), machine_cores() / group.size()));
}

// Before the first byte of a gradient: whatever would make ranks wait for each other in vain.
void TrainingRun::agree() {
  set_deadline(group(), recipe_.options);
  require_agreement(group(), "recipe", agreement_text(recipe_));
  const auto yes = [](bool is) { return is ? "yes\n" : "no\n"; };
  require_agreement(
      group(), "run",
      "training samples=" + std::to_string(data_.train.size()) +
          "\ntest samples=" + std::to_string(data_.test.size()) + "\nheld-out samples=" +
          std::to_string(data_.hold_out != nullptr ? data_.hold_out->size() : 0) +
          "\nwrites files=" + yes(writes()) + "resumes=" + yes(!places_.resume.empty()));
  std::byte flag{events_.stop != nullptr};
  group().broadcast(std::span(&flag, 1), 0);
  may_stop_ = flag != std::byte{0};
}

// Weights are broadcast before buffers are opened, which a loaded state may change.
void TrainingRun::make_taker() {
  const bool local = !recipe_.options.text("sync.method").empty();
  if (local && recipe_.options.integer("run.record_every") > 0)
    throw AgreedError(ErrorCode::kBadOption,
                      "run.record_every: workers that step by themselves encode no gradients");
  ExchangeOptions options = exchange_options(recipe_.options);
  options.steps_per_epoch = timetable_.steps_per_epoch;
  options.first_step = step_;
  if (recorder_)
    options.observe = [this](const StreamSpec& stream, const Signal& signal, const Call& call) {
      recorder_->observe(stream, signal, call);
    };
  if (local || pipeline_.stages > 0)
    broadcast_weights(*task_.module, group());
  else
    parallel_ = std::make_unique<DataParallel>(*task_.module, group(), store_, options);
  buffers_ = &store_.open<OwnBuffers>("module/buffers",
                                      [&] { return std::make_unique<OwnBuffers>(*task_.module); });
  optimizer_ = make_optimizer(recipe_.options, *task_.module);
  load_optimizer(*optimizer_, *task_.module, saved_optimizer_).or_throw();
  saved_optimizer_.clear();

  const TrainingContext context{.recipe = recipe_.options,
                                .timetable = timetable_,
                                .group = group(),
                                .task = task_,
                                .data = data_.train,
                                .buffers = *buffers_,
                                .optimizer = *optimizer_,
                                .hold_out = data_.hold_out};
  if (local) {
    auto steps =
        std::make_unique<LocalSteps>(context, store_, synchroniser_options(recipe_.options));
    local_ = steps.get();
    taker_ = std::move(steps);
  } else if (pipeline_.stages > 0) {
    taker_ = std::make_unique<PipelineSteps>(context, pipeline_, options, store_, step_);
  } else {
    parallel_->exchange().set_step(step_);
    taker_ = std::make_unique<SharedSteps>(context, *parallel_);
  }
}

void TrainingRun::tell(const StepOutcome& outcome) {
  const StepReport& report = outcome.report;
  const auto& streams = taker_->streams();
  const Kinds kinds = sum_kinds(streams, report);
  totals_.add(report, kinds, outcome.times);
  if (report.skipped) note("step " + std::to_string(step_) + " skipped: " + describe(report.fault));
  if (outcome.round && outcome.round->skipped)
    note("round " + std::to_string(outcome.round->round) +
         " skipped: " + describe(outcome.round->fault));
  const StepEvent event{.step = step_,
                        .steps = timetable_.steps,
                        .epoch = timetable_.epoch(step_),
                        .loss = outcome.loss,
                        .learning_rate = outcome.learning_rate,
                        .samples = timetable_.samples_before(step_),
                        .seconds = seconds(),
                        .exchange = &report,
                        .round = outcome.round ? &*outcome.round : nullptr,
                        .pipeline = outcome.pipeline ? &*outcome.pipeline : nullptr,
                        .lost = new_losses()};
  if (metrics_) metrics_->step(event, outcome.times, kinds, streams);
  if (events_.step) events_.step(event);
}

// Workers that are lost, and not yet spoken of.
std::vector<LostWorker> TrainingRun::new_losses() {
  std::vector<LostWorker> lost;
  if (local_ != nullptr) lost = local_->lost();
  lost.erase(lost.begin(), lost.begin() + static_cast<std::ptrdiff_t>(lost_workers_.size()));
  for (const LostWorker& worker : lost) {
    note("rank " + std::to_string(worker.rank) + " is lost: " + worker.why +
         "; the others go on without it");
    lost_workers_.push_back(worker.rank);
  }
  return lost;
}

// One byte from rank 0 a step, when it can be asked at all.
bool TrainingRun::asked_to_stop() {
  if (!may_stop_) return false;
  std::byte stop{first() && events_.stop()};
  group().broadcast(std::span(&stop, 1), 0);
  return stop != std::byte{0};
}

// Returns whether it was stopped early.
bool TrainingRun::take_steps() {
  bool stopped = false;
  while (step_ < timetable_.steps && !stopped) {
    const StepOutcome outcome = taker_->take(step_);
    ++step_;
    if (recorder_) recorder_->end_step(outcome.report.skipped);
    tell(outcome);
    if (timetable_.evaluates_after(step_ - 1)) judge();
    stopped = asked_to_stop() && step_ < timetable_.steps;
    if (stopped || timetable_.checkpoints_after(step_ - 1)) save();
  }
  return stopped;
}

// Steps that no other rank need take at the same time, until all together have taken theirs.
void TrainingRun::take_steps_alone() {
  uint64_t tests = 0;  // that were due by the last of them
  while (!local_->is_over()) {
    const StepOutcome outcome = taker_->take(step_);
    ++step_;
    own_samples_ += outcome.samples;
    tell(outcome);
    const auto& round = outcome.round;
    if (!first() || timetable_.evaluate_period == 0 || local_->is_over()) continue;
    if (!round || !round->global || round->skipped || round->leader < 0) continue;
    const uint64_t due = local_->steps_before(*round) / timetable_.evaluate_period;
    if (due > std::exchange(tests, std::max(tests, due))) judge_leader(*round);
  }
  local_->leave();
  new_losses();
  // One checkpoint and one test of all, whatever each of them took.
  group().broadcast(std::as_writable_bytes(std::span(&step_, 1)), 0);
  save();
}

RunSummary TrainingRun::train() {
  agree();
  if (!places_.resume.empty()) resume();
  together(group(), [&] { open_files(); });
  task_.module->train();
  make_taker();
  for (const std::string& key : store_.unclaimed()) note("checkpoint: nobody took '" + key + "'");

  bool stopped = false;
  if (local_ != nullptr && local_->asynchronous())
    take_steps_alone();
  else
    stopped = take_steps();
  if (!stopped && judged_at_ != step_) judge();  // nothing was left to do
  return summarise(!stopped);
}

}  // namespace thinwire
