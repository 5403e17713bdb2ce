// TrainingRun: the steps of a run, and what ranks agree on before the first.
// SPDX-License-Identifier: Apache-2.0
#include "train/training_run.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>

#include "thinwire/agreement.h"
#include "train/describe.h"
#include "train/named_tensors.h"
#include "train/recipe_parts.h"
#include "train/recipe_text.h"
#include "train/schedule.h"
#include "train/shared_steps.h"

namespace thinwire {
namespace {

uint64_t sum_over_ranks(Group& group, uint64_t mine) {
  std::vector<uint64_t> all(static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return std::accumulate(all.begin(), all.end(), uint64_t{0});
}

}  // namespace

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
          "\nwrites files=" + yes(files_.writes()) + "resumes=" + yes(files_.resumes()));
  std::byte flag{events_.stop != nullptr};
  group().broadcast(std::span(&flag, 1), 0);
  may_stop_ = flag != std::byte{0};
}

void TrainingRun::resume() {
  Checkpoint saved = files_.load(group(), [this](const std::string& text) { note(text); });
  if (pipeline_.stages > 0 && saved.world_size != group().size())
    throw AgreedError(ErrorCode::kMismatch, files_.resumed_from() + ": was saved by " +
                                                std::to_string(saved.world_size) +
                                                " workers; a pipeline goes on with as many, not " +
                                                std::to_string(group().size()));
  const int ranks = saved.world_size;
  step_ = saved.step;
  totals_ = saved.totals;
  earlier_seconds_ = totals_.seconds;
  judge_.resume();
  state_.load(std::move(saved), group(), exchange_options(recipe_.options).inside,
              files_.resumed_from());
  note("resumed at step " + std::to_string(step_));
  if (ranks != group().size())
    note("saved by " + std::to_string(ranks) + " ranks, resumed by " +
         std::to_string(group().size()) +
         ": residuals were redistributed; (1/n) times their sum over ranks is unchanged");
}

// What codec "auto" decided since the last call.
std::vector<AutoDecision> TrainingRun::new_decisions() {
  if (state_.shared() == nullptr) return {};
  const std::vector<AutoDecision>& all = state_.shared()->decisions();
  const std::vector<AutoDecision> recent(all.begin() + static_cast<std::ptrdiff_t>(told_),
                                         all.end());
  told_ = all.size();
  for (const AutoDecision& decision : recent)
    note("codec auto, step " + std::to_string(decision.step) + ": " + decision.why);
  if (recorded_ != all.size() && first() && files_.writes()) files_.write_decisions(all);
  recorded_ = all.size();
  return recent;
}

void TrainingRun::tell(const StepOutcome& outcome) {
  const StepReport& report = outcome.report;
  const auto& streams = state_.taker().streams();
  const Kinds kinds = sum_kinds(streams, report);
  totals_.add(report, kinds, outcome.times);
  if (!report.skipped) totals_.delivered_norm = outcome.delivered_norm;
  if (report.skipped) note("step " + std::to_string(step_) + " skipped: " + describe(report.fault));
  for (const std::string& line : absentees_.add(report)) note(line);
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
                        .lost = new_losses(),
                        .decisions = new_decisions()};
  if (files_.metrics() != nullptr) files_.metrics()->step(event, outcome.times, kinds, streams);
  if (events_.step) events_.step(event);
}

void TrainingRun::tell(const EvaluationEvent& event) const {
  if (files_.metrics() != nullptr) files_.metrics()->evaluation(event);
  if (events_.evaluation) events_.evaluation(event);
}

// Workers that are lost, and not yet spoken of.
std::vector<LostWorker> TrainingRun::new_losses() {
  std::vector<LostWorker> lost;
  if (state_.local() != nullptr) lost = state_.local()->lost();
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
    const StepOutcome outcome = state_.taker().take(step_);
    ++step_;
    if (files_.recorder() != nullptr) files_.recorder()->end_step(outcome.report.skipped);
    tell(outcome);
    if (timetable_.evaluates_after(step_ - 1)) judge();
    stopped = asked_to_stop() && step_ < timetable_.steps;
    if (stopped || timetable_.checkpoints_after(step_ - 1)) save();
  }
  return stopped;
}

// Steps that no other rank need take at the same time, until all together have taken theirs.
void TrainingRun::take_steps_alone() {
  LocalSteps& local = *state_.local();
  uint64_t tests = 0;  // that were due by the last of them
  while (!local.is_over()) {
    const StepOutcome outcome = state_.taker().take(step_);
    ++step_;
    own_samples_ += outcome.samples;
    tell(outcome);
    const auto& round = outcome.round;
    if (!first() || timetable_.evaluate_period == 0 || local.is_over()) continue;
    if (!round || !round->global || round->skipped || round->leader < 0) continue;
    const uint64_t due = local.steps_before(*round) / timetable_.evaluate_period;
    if (due > std::exchange(tests, std::max(tests, due))) judge_.judge_leader(local, *round, step_);
  }
  local.leave();
  new_losses();
  // One checkpoint and one test of all, whatever each of them took.
  group().broadcast(std::as_writable_bytes(std::span(&step_, 1)), 0);
  save();
}

void TrainingRun::judge() {
  // Steps of asynchronous workers differ.
  judge_.judge(
      state_.taker(), group(), step_,
      state_.local() != nullptr ? "common weights" : "weights after step " + std::to_string(step_));
}

// After the last checkpoint, whose weights and memories are those before it: a longer run goes on from
// there as if it had not ended.
void TrainingRun::flush() {
  const std::string& what = recipe_.options.text("exchange.flush");
  if (what == "off" || step_ == 0) return;
  const auto test_of = [](const EvaluationEvent& event) {
    return FlushReport::Test{
        .error = event.error, .loss = event.loss, .hold_out_error = event.hold_out_error};
  };
  SharedSteps& steps = *state_.shared();
  FlushReport report{.applied = what == "apply",
                     .learning_rate = learning_rate(recipe_.options, timetable_, step_ - 1),
                     .gradient_norm = steps.gradient_norm(step_ - 1),
                     .delivered_norm = totals_.delivered_norm,
                     .before = test_of(judge_.latest())};
  report.owed_norm = steps.collect_owed();
  steps.take_owed(report.learning_rate);
  if (report.applied) {
    judge();
    report.after = test_of(judge_.latest());
    save_weights();
  } else {
    report.after = test_of(judge_.look(steps, group(), step_, "flushed weights"));
    steps.take_back();
  }
  flush_ = report;
}

void TrainingRun::save() {
  if (!files_.wants_checkpoint(step_)) return;
  if (files_.metrics() != nullptr) files_.metrics()->sync();
  totals_.seconds = seconds();
  Checkpoint checkpoint;
  checkpoint.step = step_;
  checkpoint.world_size = group().size();
  checkpoint.totals = totals_;
  state_.save(checkpoint, /*with_weights=*/first());
  files_.save(group(), std::move(checkpoint));
}

// Those of a run whose checkpoint has others.
void TrainingRun::save_weights() {
  if (!files_.writes()) return;
  Checkpoint shown;
  state_.save(shown, /*with_weights=*/first());
  together(group(), [&] {
    if (first()) files_.write_weights(shown.model);
  });
}

RunSummary TrainingRun::summarise(bool finished) {
  totals_.seconds = seconds();
  RunSummary summary;
  summary.recipe = recipe_.name;
  summary.world_size = whole_.size();
  summary.lost_workers = lost_workers_;
  const std::string& codec = recipe_.options.text("exchange.codec");
  auto codecs = scheduled_codecs(codec);  // of auto, none
  summary.codec = codecs && codecs.value().size() == 1 ? codecs.value().front().canonical : codec;
  summary.samples = timetable_.samples_before(step_);
  if (state_.local() != nullptr && state_.local()->asynchronous())
    summary.samples = sum_over_ranks(group(), own_samples_);
  if (state_.taker().keeps_optimizer())
    state_.taker().show_common();  // what the module is left with
  judge_.summarise(summary);
  summary.finished = finished;
  summary.flush = flush_;
  // Bytes and times differ between ranks; all return rank 0's.
  const std::string mine = first() ? totals_.to_json() : "";
  const auto texts = group().all_gather_v(std::as_bytes(std::span(mine)));
  const RunTotals totals =
      RunTotals::from_json({reinterpret_cast<const char*>(texts[0].data()), texts[0].size()})
          .value();
  totals.summarise(summary);
  summary.weights_xxh3 = checksum_of(named_weights(*state_.task().module));
  group().broadcast(std::as_writable_bytes(std::span(&summary.weights_xxh3, 1)), 0);
  if (files_.writes())
    together(group(), [&] {
      if (first()) files_.write_summary(summary, totals);
    });
  return summary;
}

RunSummary TrainingRun::train() {
  agree();
  if (files_.resumes()) resume();
  together(group(), [&] {
    if (files_.writes() && first()) files_.open(step_);
  });
  state_.task().module->train();
  state_.start(recipe_.options, pipeline_, timetable_, data_, group(), step_, files_.recorder());
  if (state_.shared() != nullptr)
    for (const AutoDecision& decision : state_.shared()->decisions())
      told_ += decision.step < step_;
  for (const std::string& key : state_.store().unclaimed())
    note("checkpoint: nobody took '" + key + "'");

  bool stopped = false;
  if (state_.local() != nullptr && state_.local()->asynchronous())
    take_steps_alone();
  else
    stopped = take_steps();
  if (!stopped && !judge_.has_judged(step_)) judge();  // nothing was left to do
  if (!stopped) flush();
  return summarise(!stopped);
}

}  // namespace thinwire
