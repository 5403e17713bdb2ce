// TrainingRun: the steps of a run, and what ranks agree on before the first.
// SPDX-License-Identifier: Apache-2.0
#include "train/training_run.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "thinwire/agreement.h"
#include "thinwire/auto_codec.h"
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

// What a small checkpoint came to, in one line.
std::string describe_small(uint64_t step, const SmallReport& report) {
  char text[200];
  std::snprintf(
      text, sizeof text,
      "checkpoint at step %llu: %llu bytes of weights in %llu (%.1fx), held-out loss %.5g "
      "instead of %.5g, %d settings tried, %.2f s",
      static_cast<unsigned long long>(step), static_cast<unsigned long long>(report.exact_bytes),
      static_cast<unsigned long long>(report.bytes),
      static_cast<double>(report.exact_bytes) / static_cast<double>(report.bytes), report.loss,
      report.exact_loss, report.trials, report.seconds);
  return text;
}

}  // namespace

std::string TrainingRun::agreed_text() const {
  const auto yes = [](bool is) { return is ? "yes\n" : "no\n"; };
  return "training samples=" + std::to_string(data_.train.size()) +
         "\ntest samples=" + std::to_string(data_.test.size()) + "\nheld-out samples=" +
         std::to_string(data_.hold_out != nullptr ? data_.hold_out->size() : 0) +
         "\nwrites files=" + yes(files_.writes()) + "resumes=" + yes(files_.resumes()) +
         "elastic=" + yes(elastic_ != nullptr);
}

// Before the first byte of a gradient: whatever would make ranks wait for each other in vain.
void TrainingRun::agree() {
  set_deadline(group(), recipe_.options);
  require_agreement(group(), "recipe", agreement_text(recipe_));
  require_agreement(group(), "run", agreed_text());
  std::byte flag{events_.stop != nullptr};
  group().broadcast(std::span(&flag, 1), 0);
  may_stop_ = flag != std::byte{0};
}

void TrainingRun::resume() {
  Checkpoint saved = files_.load(group(), [this](const std::string& text) { note(text); });
  if ((pipeline_.stages > 0 || tensor_.ranks > 0) && saved.world_size != group().size())
    throw AgreedError(ErrorCode::kMismatch,
                      files_.resumed_from() + ": was saved by " + std::to_string(saved.world_size) +
                          " workers; " +
                          (tensor_.ranks > 0 ? "a run with tensor.ranks" : "a pipeline") +
                          " goes on with as many, not " + std::to_string(group().size()));
  const int ranks = saved.world_size;
  const std::string small_from = saved.small_from;
  const SavedOptimizer optimizer = saved.saved_optimizer;
  step_ = saved.step;
  totals_ = saved.totals;
  earlier_seconds_ = totals_.seconds;
  judge_.resume();
  state_.load(std::move(saved), group(), exchange_options(recipe_.options).inside,
              files_.resumed_from());
  note("resumed at step " + std::to_string(step_));
  if (!small_from.empty())
    note("weights are those of a small checkpoint, " + small_from +
         ", within its tolerance of those that were trained");
  if (optimizer == SavedOptimizer::kHalf)
    note("the optimiser's state was saved in 16 bits, as checkpoint.compress had optimizer=half");
  if (optimizer == SavedOptimizer::kNone)
    note(
        "the optimiser's state is not in the checkpoint, as checkpoint.compress had "
        "optimizer=none: its momentum and moments begin at zero");
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
  write_decisions();
  return recent;
}

// All that codec "auto" decided, if that is more than there was.
void TrainingRun::write_decisions() {
  if (state_.shared() == nullptr) return;
  const std::vector<AutoDecision>& all = state_.shared()->decisions();
  if (recorded_ != all.size() && first() && files_.writes())
    files_.write_decisions(parse_auto(recipe_.options.text("exchange.codec")).value().loss, all);
  recorded_ = all.size();
}

// Once, of a run whose gradients are on a device: what of them is compressed by the processor, and
// the first reason.
void TrainingRun::tell_of_staging(const StepReport& report) {
  if (std::exchange(staging_told_, true)) return;
  size_t staged = 0, there = 0;
  const std::string* why = nullptr;
  for (const StreamCounters& stream : report.streams) {
    there += stream.on_device;
    if (stream.why_staged.empty()) continue;
    if (staged++ == 0) why = &stream.why_staged;
  }
  if (why != nullptr)
    note(std::to_string(staged) + " of " + std::to_string(staged + there) +
         " streams are compressed by the processor: " + *why);
}

void TrainingRun::tell(const StepOutcome& outcome) {
  const StepReport& report = outcome.report;
  const auto& streams = state_.taker().streams();
  const Kinds kinds = sum_kinds(streams, report);
  totals_.add(report, kinds, outcome.times);
  if (!report.skipped) totals_.delivered_norm = outcome.delivered_norm;
  if (report.skipped) note("step " + std::to_string(step_) + " skipped: " + describe(report.fault));
  for (const std::string& line : absentees_.add(report)) note(line);
  tell_of_staging(report);
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
                        .joined = std::exchange(joined_, {}),
                        .ranks = std::exchange(ranks_, 0),
                        .decisions = new_decisions()};
  if (files_.metrics() != nullptr) files_.metrics()->step(event, outcome.times, kinds, streams);
  if (files_.figures() != nullptr && whole_.size() > 1)
    files_.figures()->add(whole_.rank(), whole_.size(), step_, event.seconds, outcome);
  if (events_.step && tells()) events_.step(event);
}

void TrainingRun::tell(const EvaluationEvent& event) {
  // A test may be made again because a worker was lost in it.
  if (elastic_ != nullptr && std::exchange(test_told_, event.step) == event.step) return;
  if (files_.metrics() != nullptr) files_.metrics()->evaluation(event);
  if (events_.evaluation && tells()) events_.evaluation(event);
}

// Workers that are lost, and not yet spoken of.
std::vector<LostWorker> TrainingRun::new_losses() {
  if (elastic_ != nullptr) return std::exchange(losses_, {});
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
  std::byte stop{first() && events_.stop && events_.stop()};
  group().broadcast(std::span(&stop, 1), 0);
  return stop != std::byte{0};
}

void TrainingRun::end_step(const StepOutcome& outcome) {
  ++step_;
  next_ = Next::kJudge;
  if (files_.recorder() != nullptr) files_.recorder()->end_step(outcome.report.skipped);
  tell(outcome);
}

void TrainingRun::advance() {
  switch (next_) {
    case Next::kStep:
      if (step_ < timetable_.steps && !stopped_)
        end_step(state_.taker().take(step_));
      else
        next_ = Next::kEnd;
      return;
    case Next::kJudge:
      if (timetable_.evaluates_after(step_ - 1)) judge();
      next_ = Next::kAsk;
      return;
    case Next::kAsk:
      stopped_ = asked_to_stop() && step_ < timetable_.steps;
      next_ = Next::kSave;
      return;
    case Next::kSave:
      if (stopped_ || timetable_.checkpoints_after(step_ - 1)) save();
      next_ = Next::kAdmit;
      return;
    case Next::kAdmit:
      next_ = Next::kStep;
      if (elastic_ != nullptr && !stopped_ && step_ < timetable_.steps &&
          timetable_.checkpoints_after(step_ - 1))
        admit();
      return;
    case Next::kEnd:
      if (!stopped_ && !judge_.has_judged(step_)) judge();  // nothing was left to do
      if (files_.resumes() && step_ > 0) save();            // a checkpoint that another folder has
      if (!stopped_) flush();
      summary_ = summarise(!stopped_);
      next_ = Next::kNothing;
      return;
    case Next::kNothing:
      return;
  }
}

void TrainingRun::take_steps() {
  while (next_ != Next::kNothing) {
    try {
      advance();
    } catch (const Error& error) {
      if (elastic_ == nullptr || !Elastic::is_loss(error)) throw;
      recover(error);
    }
  }
}

// Steps that no other rank need take at the same time, until all together have taken theirs.
void TrainingRun::take_steps_alone() {
  LocalSteps& local = *state_.local();
  uint64_t own_samples = 0;
  uint64_t tests = 0;                                    // that were due by the last of them
  if (local.own_steps() > 0) step_ = local.own_steps();  // a checkpoint has rank 0's
  while (!local.is_over()) {
    const StepOutcome outcome = state_.taker().take(step_);
    ++step_;
    own_samples += outcome.samples;
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
  totals_.samples += sum_over_ranks(group(), own_samples);
  save();
}

void TrainingRun::judge() {
  // Steps of asynchronous workers differ.
  judge_.judge(
      state_.taker(), group(), step_,
      state_.local() != nullptr ? "common weights" : "weights after step " + std::to_string(step_));
}

// After the last checkpoint, whose weights and memories are those before it: a longer run goes on
// from there as if it had not ended.
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
  checkpoint.generation = elastic_ != nullptr ? elastic_->generation() : 0;
  checkpoint.totals = totals_;
  checkpoint.keep = static_cast<size_t>(recipe_.options.integer("checkpoint.keep"));
  std::function<void()> shrink;
  if (small_) shrink = [&] { small_->shrink(group(), checkpoint); };
  state_.save(checkpoint, /*with_weights=*/first(), shrink);
  std::optional<SmallReport> report;
  if (checkpoint.small) report = checkpoint.small->report;
  const auto folder = files_.save(group(), std::move(checkpoint));
  if (small_) small_->saved_in(folder);
  if (report) note(describe_small(step_, *report));
}

// Before the first step, so that a run that cannot have them ends at once.
void TrainingRun::prepare_small_checkpoints() {
  const auto options = parse_small_options(recipe_.options.text("checkpoint.compress")).value();
  if (!options || !files_.writes()) return;
  if (Status status = check_small_options(recipe_.options); !status)  // callers' own tasks
    throw AgreedError(status.code(), "checkpoint.compress: " + status.message());
  if (data_.hold_out == nullptr || data_.hold_out->size() == 0)
    throw AgreedError(ErrorCode::kBadOption,
                      std::string("checkpoint.compress: needs held-out samples, on which its "
                                  "tolerance is measured, and ") +
                          (data_.hold_out == nullptr ? "there are none" : "their set is empty") +
                          "; set data.hold_out");
  small_.emplace(*options, state_.task(), *data_.hold_out,
                 static_cast<uint64_t>(recipe_.options.integer("train.evaluate_batch")),
                 static_cast<uint64_t>(recipe_.options.integer("train.seed")));
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

// As far as this rank knows it alone.
RunSummary TrainingRun::own_summary(bool finished) {
  totals_.seconds = seconds();
  RunSummary summary;
  summary.recipe = recipe_.name;
  summary.world_size = whole_.size();
  summary.lost_workers = lost_workers_;
  summary.joined_workers = joined_workers_;
  const std::string& codec = recipe_.options.text("exchange.codec");
  auto codecs = scheduled_codecs(codec);  // of auto, none
  summary.codec = codecs && codecs.value().size() == 1 ? codecs.value().front().canonical : codec;
  summary.samples = timetable_.samples_before(step_);
  judge_.summarise(summary);
  summary.finished = finished;
  summary.flush = flush_;
  totals_.summarise(summary);
  return summary;
}

RunSummary TrainingRun::summarise(bool finished) {
  RunSummary summary = own_summary(finished);
  if (state_.taker().keeps_optimizer())
    state_.taker().show_common();  // what the module is left with
  // Bytes and times differ between ranks; all return rank 0's.
  const std::string mine = first() ? totals_.to_json() : "";
  const auto texts = group().all_gather_v(std::as_bytes(std::span(mine)));
  const RunTotals totals =
      RunTotals::from_json({reinterpret_cast<const char*>(texts[0].data()), texts[0].size()})
          .value();
  totals.summarise(summary);
  if (state_.local() != nullptr && state_.local()->asynchronous()) summary.samples = totals.samples;
  summary.weights_xxh3 = checksum_of(named_weights(*state_.task().module));
  group().broadcast(std::as_writable_bytes(std::span(&summary.weights_xxh3, 1)), 0);
  if (files_.writes())
    together(group(), [&] {
      if (first()) files_.write_summary(summary, totals);
    });
  return summary;
}

void TrainingRun::begin() {
  agree();
  prepare_small_checkpoints();
  if (files_.resumes()) resume();
  together(group(), [&] {
    if (files_.writes() && first()) files_.check();
  });
  state_.start(recipe_.options, pipeline_, tensor_, timetable_, data_, group(), step_,
               files_.recorder(), {.generation = elastic_ != nullptr ? elastic_->generation() : 0});
  // Only now: a run that cannot start leaves the one before it in its folder.
  together(group(), [&] {
    if (!files_.writes() || !first()) return;
    files_.open(step_);
    write_decisions();  // those of the checkpoint
  });
  ranks_told_ = group().size();
  has_common_ = true;
  if (state_.shared() != nullptr)
    for (const AutoDecision& decision : state_.shared()->decisions())
      told_ += decision.step < step_;
  for (const std::string& key : state_.store().unclaimed())
    note("checkpoint: nobody took '" + key + "'");
}

// What drives a worker out is told before the end of its exchange, which says less, ends the steps
// of the others.
RunSummary TrainingRun::train() {
  if (elastic_ == nullptr) return train_to_the_end();
  try {
    return train_to_the_end();
  } catch (const AgreedError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string why = error.what();
    group().abort(why.substr(0, why.find('\n')));
    throw;
  }
}

RunSummary TrainingRun::train_to_the_end() {
  state_.task().module->train();
  if (elastic_ != nullptr && elastic_->is_newcomer())
    join();
  else
    begin();
  if (state_.local() != nullptr && state_.local()->asynchronous()) {
    take_steps_alone();
    next_ = Next::kEnd;
  }
  take_steps();
  return *std::move(summary_);
}

}  // namespace thinwire
