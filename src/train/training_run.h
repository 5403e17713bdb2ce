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
#include "train/elastic.h"
#include "train/pipeline/pipeline_options.h"
#include "train/run_files.h"
#include "train/run_judge.h"
#include "train/run_state.h"
#include "train/run_totals.h"
#include "train/small_checkpoints.h"
#include "train/tensor/tensor_options.h"
#include "train/thread_count.h"
#include "train/timetable.h"

namespace thinwire {

// Of one rank. Every method but those of rank 0's files is called by all ranks, or by all that are
// left.
class TrainingRun {
 public:
  // The task's module and the data's batches are on the device. `elastic`, if workers come and go,
  // is what `group` belongs to; it outlives this.
  TrainingRun(const Recipe& recipe, const RunPlaces& places, Group& group, Task task,
              const TaskData& data, const RunDevice& device, const RunEvents& events,
              Elastic* elastic = nullptr)
      : recipe_(recipe),
        whole_(group),
        elastic_(elastic),
        data_(data),
        events_(events),
        threads_(threads_of(recipe.options, group)),
        timetable_(make_timetable(recipe.options, data.train.size())),
        pipeline_(pipeline_options(recipe.options)),
        tensor_(tensor_options(recipe.options)),
        files_(recipe, places),
        state_(with_defaults(std::move(task)), device),
        judge_(recipe.options, state_.task(), data_, timetable_, totals_,
               [this](const EvaluationEvent& event) { tell(event); }) {}

  RunSummary train();

 private:
  // What comes next after step_ steps, in this order. If a worker is lost, the others go on from
  // the first of these that one of them has not done.
  enum class Next : uint32_t { kJudge, kAsk, kSave, kAdmit, kStep, kEnd, kNothing };

  // Where a group of workers that come and go began.
  struct Beginning {
    uint64_t step = UINT64_MAX;
    Next next = Next::kNothing;
    uint32_t repeats = 0;  // groups just before it, of the same workers, that began there, too
    std::vector<int> workers = {};
  };

  std::string agreed_text() const;
  void agree();
  void begin();
  void resume();
  RunSummary train_to_the_end();
  void take_steps();
  void advance();
  void end_step(const StepOutcome& outcome);
  void take_steps_alone();
  bool asked_to_stop();
  std::vector<LostWorker> new_losses();
  std::vector<AutoDecision> new_decisions();
  void write_decisions();
  void tell_of_staging(const StepReport& report);
  void tell(const StepOutcome& outcome);
  void tell(const EvaluationEvent& event);
  void note(const std::string& text) const {
    if (events_.note && tells()) events_.note(text);
  }
  void judge();
  void flush();
  void save();
  void save_weights();
  void prepare_small_checkpoints();
  RunSummary summarise(bool finished);
  RunSummary own_summary(bool finished);

  // Of runs whose workers come and go: elastic_run.cc.
  void join();
  void admit();
  void recover(const Error& error);
  void end_with_another();
  void form(const std::string& why);
  void part_with_others(const std::string& text, const std::vector<bool>& fits, size_t model);
  void go_on(const std::string& why);
  void come_into_line(const Regrouped& how, const std::string& why);
  [[noreturn]] void give_up_repeating(const Beginning& where, const std::string& why) const;
  StateArrays pack_common();
  void take_common(const StateArrays& arrays);

  // All, or those that are left of asynchronous workers.
  Group& group() const { return state_.local() != nullptr ? state_.local()->group() : whole_; }
  bool first() const { return whole_.rank() == 0; }
  // Whether the caller is told: on all ranks, or on the first of workers that come and go.
  bool tells() const { return elastic_ == nullptr || first(); }
  double seconds() const { return earlier_seconds_ + clock_.seconds(); }

  const Recipe& recipe_;
  Group& whole_;
  Elastic* const elastic_;
  const TaskData data_;
  const RunEvents& events_;
  const ThreadCount threads_;
  const Timetable timetable_;
  const PipelineOptions pipeline_;
  const TensorParallelOptions tensor_;
  bool may_stop_ = false;

  RunTotals totals_;
  RunFiles files_;  // outlives the exchange whose signals it records
  RunState state_;
  Absentees absentees_;
  RunJudge judge_;

  uint64_t step_ = 0;  // steps done
  Next next_ = Next::kStep;
  bool has_common_ =
      false;  // what data-parallel workers hold alike; one that joins has nothing yet
  bool stopped_ = false;
  Beginning begun_;  // of the last group into which this worker came
  std::optional<RunSummary> summary_;
  std::vector<int> lost_workers_, joined_workers_;
  std::vector<int> refused_;        // workers that did not fit, each noted once
  std::vector<LostWorker> losses_;  // of data-parallel workers, for the next step's event
  std::vector<int> joined_;         // likewise
  int ranks_ = 0;                   // likewise, if they are not as many as before
  int ranks_told_ = 0;
  uint64_t test_told_ = UINT64_MAX;  // after so many steps
  bool staging_told_ = false;
  size_t told_ = 0,
         recorded_ = 0;  // decisions of codec auto, in this run or the one that it goes on with
  std::optional<FlushReport> flush_;
  std::optional<SmallCheckpoints> small_;  // none: checkpoints are exact
  ElapsedTime clock_;
  double earlier_seconds_ = 0;  // of the run that is resumed
};

}  // namespace thinwire
