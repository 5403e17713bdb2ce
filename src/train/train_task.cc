// A run of one rank from start to end: agree, resume, step, test, save.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "thinwire/threads.h"
#include "train/broadcast_weights.h"
#include "train/checkpoint.h"
#include "train/durable_file.h"
#include "train/evaluate.h"
#include "train/local_steps.h"
#include "train/machine.h"
#include "train/manifest.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/pipeline/pipeline_options.h"
#include "train/pipeline/pipeline_steps.h"
#include "train/recipe_parts.h"
#include "train/recipe_text.h"
#include "train/shared_steps.h"
#include "train/signal_recorder.h"
#include "train/stopwatch.h"
#include "train/together.h"

namespace thinwire {
namespace {

// Threads of this rank's arithmetic, while it lives.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(at::get_num_threads()) {
    at::set_num_threads(count);
    if (count > 1) set_codec_threads(count);  // of all workers in this process
  }
  ~ThreadCount() { at::set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

int threads_of(const Options& recipe, const Group& group) {
  const auto given = static_cast<int>(recipe.integer("run.threads"));
  if (given != 0) return given;
  // Where mpirun binds ranks to cores, no more than those.
  return std::max(1, std::min(available_cores(), machine_cores() / group.size()));
}

std::filesystem::path absolute_folder(const std::string& name) {
  const auto path = std::filesystem::weakly_canonical(std::filesystem::absolute(name));
  return path.has_filename() ? path : path.parent_path();  // without a slash at the end
}

// Whether a run goes on in the folder that it was saved in.
bool continues(const RunPlaces& places) {
  if (places.resume.empty()) return false;
  const auto out = absolute_folder(places.out), from = absolute_folder(places.resume);
  return from == out || from.parent_path() == out;
}

uint64_t sum_over_ranks(Group& group, uint64_t mine) {
  std::vector<uint64_t> all(static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return std::accumulate(all.begin(), all.end(), uint64_t{0});
}

class Run {
 public:
  Run(const Recipe& recipe, const RunPlaces& places, Group& group, Task task, const TaskData& data,
      const RunEvents& events)
      : recipe_(recipe),
        places_(places),
        whole_(group),
        task_(with_defaults(std::move(task))),
        data_(data),
        events_(events),
        threads_(threads_of(recipe.options, group)),
        timetable_(make_timetable(recipe.options, data.train.size())),
        pipeline_(pipeline_options(recipe.options)) {}

  RunSummary train();

 private:
  void agree();
  void resume();
  void open_files();
  void make_taker();
  bool take_steps();
  void take_steps_alone();
  std::vector<LostWorker> new_losses();
  void tell(const StepOutcome& outcome);
  void judge();
  void judge_leader(const RoundReport& round);
  void conclude(const EvaluationEvent& event);
  Score score(Group& among, const Task& task, const Dataset& data) const;
  void save();
  bool asked_to_stop();
  void note(const std::string& text) const {
    if (events_.note) events_.note(text);
  }
  RunSummary summarise(bool finished);

  // All, or those that are left of asynchronous workers.
  Group& group() const { return local_ != nullptr ? local_->group() : whole_; }
  bool first() const { return whole_.rank() == 0; }
  bool writes() const { return !places_.out.empty(); }
  double seconds() const { return earlier_seconds_ + clock_.seconds(); }

  const Recipe& recipe_;
  const RunPlaces& places_;
  Group& whole_;
  const Task task_;
  const TaskData data_;
  const RunEvents& events_;
  const ThreadCount threads_;
  const Timetable timetable_;
  const PipelineOptions pipeline_;
  bool may_stop_ = false;

  Store store_;
  StateArrays saved_optimizer_;
  std::unique_ptr<SignalRecorder> recorder_;  // outlives the exchange that it observes
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  OwnBuffers* buffers_ = nullptr;  // in the store
  std::unique_ptr<StepTaker> taker_;
  LocalSteps* local_ = nullptr;  // the taker, where workers step by themselves
  std::unique_ptr<MetricsFile> metrics_;

  uint64_t step_ = 0;         // steps done
  uint64_t own_samples_ = 0;  // of asynchronous workers
  std::vector<int> lost_workers_;
  std::optional<uint64_t> others_after_;  // until the first checkpoint of a resumed run
  uint64_t saved_at_ = UINT64_MAX;
  uint64_t judged_at_ = UINT64_MAX;
  EvaluationEvent latest_;
  RunTotals totals_;
  Stopwatch clock_;
  double earlier_seconds_ = 0;  // of the run that is resumed
};

// Before the first byte of a gradient: whatever would make ranks wait for each other in vain.
void Run::agree() {
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

void Run::resume() {
  Checkpoint saved = load_checkpoint(group(), places_.resume);
  require_agreement(group(), "checkpoint",
                    "step=" + std::to_string(saved.step) +
                        "\nranks=" + std::to_string(saved.world_size) + '\n' + saved.recipe);
  const RecipeChanges changes = compare_recipes(saved.recipe, agreement_text(recipe_));
  if (!changes.forbidden.empty())
    throw AgreedError(ErrorCode::kMismatch,
                      places_.resume + ": belongs to another recipe: " + changes.forbidden.front());
  for (const std::string& change : changes.allowed) note("resumed with " + change);
  if (pipeline_.stages > 0 && saved.world_size != group().size())
    throw AgreedError(ErrorCode::kMismatch, places_.resume + ": was saved by " +
                                                std::to_string(saved.world_size) +
                                                " workers; a pipeline goes on with as many, not " +
                                                std::to_string(group().size()));

  together(group(), [&] {
    const torch::NoGradGuard no_grad;
    for (const NamedTensor& weight : named_weights(*task_.module))
      if (const Status status = from_state(saved.model, weight); !status)
        throw Error(status.code(), places_.resume + ": model: " + status.message());
    if (const Status status = store_.load(saved.ranks, group().rank(), group().size()); !status)
      throw Error(status.code(), places_.resume + ": " + status.message());
  });
  saved_optimizer_ = std::move(saved.optimizer);
  step_ = saved_at_ = saved.step;
  if (continues(places_)) others_after_ = step_;
  totals_ = saved.totals;
  latest_.error = totals_.last_error;
  latest_.loss = totals_.last_loss;
  if (totals_.last_hold_out_error <= 1) latest_.hold_out_error = totals_.last_hold_out_error;
  if (totals_.last_compressed_error <= 1) {
    latest_.compressed_error = totals_.last_compressed_error;
    latest_.compressed_loss = totals_.last_compressed_loss;
  }
  if (totals_.last_compressed_hold_out_error <= 1)
    latest_.compressed_hold_out_error = totals_.last_compressed_hold_out_error;
  earlier_seconds_ = totals_.seconds;
  note("resumed at step " + std::to_string(step_));
  if (saved.world_size != group().size())
    note("saved by " + std::to_string(saved.world_size) + " ranks, resumed by " +
         std::to_string(group().size()) +
         ": residuals were redistributed; (1/n) times their sum over ranks is unchanged");
}

void Run::open_files() {
  if (!writes() || !first()) return;
  const std::filesystem::path out = places_.out;
  prepare_out(out, continues(places_));
  const std::string toml = recipe_toml(recipe_);
  replace_durably(out / "recipe.toml", std::as_bytes(std::span(toml)));
  metrics_ = std::make_unique<MetricsFile>(out / "metrics.jsonl", step_,
                                           recipe_.options.flag("run.stream_metrics"));
  if (const int64_t every = recipe_.options.integer("run.record_every"); every > 0)
    recorder_ = std::make_unique<SignalRecorder>(out / "signals", static_cast<uint64_t>(every));
}

void Run::tell(const StepOutcome& outcome) {
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

Score Run::score(Group& among, const Task& task, const Dataset& data) const {
  const auto batch = static_cast<uint64_t>(recipe_.options.integer("train.evaluate_batch"));
  const FetchContext context{.training = false,
                             .seed = static_cast<uint64_t>(recipe_.options.integer("train.seed")),
                             .epoch = 0};
  return evaluate(among, task, data, batch, context);
}

void Run::judge() {
  Stopwatch judging;
  taker_->settle();
  taker_->show_common();
  // Steps of asynchronous workers differ.
  require_agreement(
      group(), local_ != nullptr ? "common weights" : "weights after step " + std::to_string(step_),
      hex(checksum_of(trained_weights(*task_.module))));
  const auto score_of = [this](const Task& task, const Dataset& data) {
    return score(group(), task, data);
  };
  const Score test = score_of(task_, data_.test);
  latest_ = {.step = step_,
             .epoch = timetable_.epoch(step_),
             .loss = test.loss,
             .error = test.error,
             .samples = test.samples};
  if (data_.hold_out != nullptr) latest_.hold_out_error = score_of(task_, *data_.hold_out).error;
  taker_->show_own();
  taker_->judge_more({.score = score_of, .test = data_.test, .hold_out = data_.hold_out}, latest_);
  judged_at_ = step_;
  totals_.last_error = latest_.error;
  totals_.last_loss = latest_.loss;
  totals_.last_hold_out_error = latest_.hold_out_error.value_or(2);
  totals_.last_compressed_error = latest_.compressed_error.value_or(2);
  totals_.last_compressed_loss = latest_.compressed_loss.value_or(0);
  totals_.last_compressed_hold_out_error = latest_.compressed_hold_out_error.value_or(2);
  totals_.evaluate_seconds += judging.seconds();
  conclude(latest_);
}

void Run::conclude(const EvaluationEvent& event) {
  totals_.best_error = std::min(totals_.best_error, event.error);
  if (metrics_) metrics_->evaluation(event);
  if (events_.evaluation) events_.evaluation(event);
}

// Of asynchronous workers, by the first of them in its own time: others train on, and wait for it in the
// next round only.
void Run::judge_leader(const RoundReport& round) {
  Stopwatch judging;
  const auto alone = make_local_groups(1);
  const auto score_of = [&](const Task& task, const Dataset& data) {
    return score(*alone[0], task, data);
  };
  EvaluationEvent event{.step = step_, .epoch = timetable_.epoch(local_->steps_before(round))};
  local_->judge_leader(round, {.score = score_of, .test = data_.test, .hold_out = data_.hold_out},
                       event);
  totals_.evaluate_seconds += judging.seconds();
  conclude(event);
}

void Run::save() {
  if (!writes() || saved_at_ == step_) return;
  if (metrics_) metrics_->sync();
  totals_.seconds = seconds();
  Checkpoint checkpoint{.step = step_,
                        .world_size = group().size(),
                        .others_after = others_after_,
                        .recipe = agreement_text(recipe_),
                        .totals = totals_,
                        .model = {},
                        .optimizer = {},
                        .ranks = {store_.save()}};
  // For users of the weights: what is common. For resuming, each rank has its own in the store.
  taker_->show_common();
  if (first()) {
    for (const NamedTensor& weight : named_weights(*task_.module))
      checkpoint.model.push_back(to_state(weight, OnResize::kCopy));
    if (!taker_->keeps_optimizer())
      checkpoint.optimizer = save_optimizer(*optimizer_, *task_.module);
  }
  taker_->show_own();
  save_checkpoint(group(), places_.out, checkpoint);
  others_after_.reset();
  saved_at_ = step_;
}

// One byte from rank 0 a step, when it can be asked at all.
bool Run::asked_to_stop() {
  if (!may_stop_) return false;
  std::byte stop{first() && events_.stop()};
  group().broadcast(std::span(&stop, 1), 0);
  return stop != std::byte{0};
}

RunSummary Run::summarise(bool finished) {
  totals_.seconds = seconds();
  RunSummary summary;
  summary.recipe = recipe_.name;
  summary.world_size = whole_.size();
  summary.lost_workers = lost_workers_;
  const std::string& codec = recipe_.options.text("exchange.codec");
  auto codecs = scheduled_codecs(codec);
  summary.codec = codecs.value().size() == 1 ? codecs.value().front().canonical : codec;
  summary.samples = timetable_.samples_before(step_);
  if (local_ != nullptr && local_->asynchronous())
    summary.samples = sum_over_ranks(group(), own_samples_);
  if (taker_->keeps_optimizer()) taker_->show_common();  // what the module is left with
  summary.final_test_error = latest_.error;
  summary.final_test_loss = latest_.loss;
  summary.final_hold_out_error = latest_.hold_out_error;
  summary.final_compressed_test_error = latest_.compressed_error;
  summary.final_compressed_test_loss = latest_.compressed_loss;
  summary.final_compressed_hold_out_error = latest_.compressed_hold_out_error;
  summary.finished = finished;
  // Bytes and times differ between ranks; all return rank 0's.
  const std::string mine = first() ? totals_.to_json() : "";
  const auto texts = group().all_gather_v(std::as_bytes(std::span(mine)));
  const RunTotals totals =
      RunTotals::from_json({reinterpret_cast<const char*>(texts[0].data()), texts[0].size()})
          .value();
  totals.summarise(summary);
  summary.weights_xxh3 = checksum_of(named_weights(*task_.module));
  group().broadcast(std::as_writable_bytes(std::span(&summary.weights_xxh3, 1)), 0);
  if (writes())
    together(group(), [&] {
      if (first())
        write_summary(std::filesystem::path(places_.out) / "summary.json", summary, totals,
                      recipe_);
    });
  return summary;
}

// Weights are broadcast before buffers are opened, which a loaded state may change.
void Run::make_taker() {
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

  const StepContext context{.recipe = recipe_.options,
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

// Workers that are lost, and not yet spoken of.
std::vector<LostWorker> Run::new_losses() {
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

// Steps that no other rank need take at the same time, until all together have taken theirs.
void Run::take_steps_alone() {
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

RunSummary Run::train() {
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

// Returns whether it was stopped early.
bool Run::take_steps() {
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

}  // namespace

RunSummary train_task(const Recipe& recipe, const RunPlaces& places, Group& group, Task task,
                      const TaskData& data, const RunEvents& events) {
  return Run(recipe, places, group, std::move(task), data, events).train();
}

}  // namespace thinwire
