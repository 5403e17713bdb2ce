// A run of one rank from start to end: agree, resume, step, test, save.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "thinwire/store.h"
#include "thinwire/threads.h"
#include "thinwire/torch.h"
#include "thinwire/trainer.h"
#include "train/elapsed_time.h"
#include "train/evaluate.h"
#include "train/local_steps.h"
#include "train/metrics.h"
#include "train/own_buffers.h"
#include "train/pipeline/pipeline_options.h"
#include "train/recipe_parts.h"
#include "train/run_totals.h"
#include "train/signal_recorder.h"
#include "train/step_taker.h"
#include "train/timetable.h"

namespace thinwire {

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

// How many a worker has by its recipe, run.threads.
int threads_of(const Options& recipe, const Group& group);

// Of one rank. Every method but those of rank 0's files is called by all ranks, or by all that are left.
class TrainingRun {
 public:
  TrainingRun(const Recipe& recipe, const RunPlaces& places, Group& group, Task task,
              const TaskData& data, const RunEvents& events)
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
  ElapsedTime clock_;
  double earlier_seconds_ = 0;  // of the run that is resumed
};

}  // namespace thinwire
