// A run of one rank from start to end: agree, resume, step, test, save.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "thinwire/torch.h"
#include "thinwire/trainer.h"
#include "train/absentees.h"
#include "train/elapsed_time.h"
#include "train/pipeline/pipeline_options.h"
#include "train/run_files.h"
#include "train/run_judge.h"
#include "train/run_state.h"
#include "train/run_totals.h"
#include "train/thread_count.h"
#include "train/timetable.h"

namespace thinwire {

// Of one rank. Every method but those of rank 0's files is called by all ranks, or by all that are left.
class TrainingRun {
 public:
  TrainingRun(const Recipe& recipe, const RunPlaces& places, Group& group, Task task,
              const TaskData& data, const RunEvents& events)
      : recipe_(recipe),
        whole_(group),
        data_(data),
        events_(events),
        threads_(threads_of(recipe.options, group)),
        timetable_(make_timetable(recipe.options, data.train.size())),
        pipeline_(pipeline_options(recipe.options)),
        files_(recipe, places),
        state_(with_defaults(std::move(task))),
        judge_(recipe.options, state_.task(), data_, timetable_, totals_,
               [this](const EvaluationEvent& event) { tell(event); }) {}

  RunSummary train();

 private:
  void agree();
  void resume();
  bool take_steps();
  void take_steps_alone();
  bool asked_to_stop();
  std::vector<LostWorker> new_losses();
  std::vector<AutoDecision> new_decisions();
  void tell(const StepOutcome& outcome);
  void tell(const EvaluationEvent& event) const;
  void note(const std::string& text) const {
    if (events_.note) events_.note(text);
  }
  void judge();
  void flush();
  void save();
  void save_weights();
  RunSummary summarise(bool finished);

  // All, or those that are left of asynchronous workers.
  Group& group() const { return state_.local() != nullptr ? state_.local()->group() : whole_; }
  bool first() const { return whole_.rank() == 0; }
  double seconds() const { return earlier_seconds_ + clock_.seconds(); }

  const Recipe& recipe_;
  Group& whole_;
  const TaskData data_;
  const RunEvents& events_;
  const ThreadCount threads_;
  const Timetable timetable_;
  const PipelineOptions pipeline_;
  bool may_stop_ = false;

  RunTotals totals_;
  RunFiles files_;  // outlives the exchange whose signals it records
  RunState state_;
  Absentees absentees_;
  RunJudge judge_;

  uint64_t step_ = 0;         // steps done
  uint64_t own_samples_ = 0;  // of asynchronous workers
  std::vector<int> lost_workers_;
  size_t told_ = 0,
         recorded_ = 0;  // decisions of codec auto, in this run or the one that it goes on with
  std::optional<FlushReport> flush_;
  ElapsedTime clock_;
  double earlier_seconds_ = 0;  // of the run that is resumed
};

}  // namespace thinwire
