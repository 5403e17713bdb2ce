// Tests a run's network on data outside its training data, during the run and at its end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "thinwire/torch.h"
#include "thinwire/trainer.h"
#include "train/evaluate.h"
#include "train/local_steps.h"
#include "train/run_totals.h"
#include "train/step_taker.h"
#include "train/timetable.h"

namespace thinwire {

// Of one rank. Notes in the totals what tests came to, and how long they took.
class RunJudge {
 public:
  // All must outlive it. `tell` is given every test.
  RunJudge(const Options& recipe, const Task& task, const TaskData& data,
           const Timetable& timetable, RunTotals& totals,
           std::function<void(const EvaluationEvent&)> tell);

  // Goes on from the last test of a run that is resumed, which is in the totals.
  void resume();

  // Tests what all ranks of `group` have in common after `step` steps. Called by all of them.
  // Throws Error(kMismatch) where their weights differ; `weights` says which those are.
  void judge(StepTaker& taker, Group& group, uint64_t step, const std::string& weights);

  // The same without a trace in the totals and events.
  EvaluationEvent look(StepTaker& taker, Group& group, uint64_t step, const std::string& weights);

  // What the last call of judge found, or a resumed run's last test.
  const EvaluationEvent& latest() const noexcept { return latest_; }

  // Tests the leader of a round of asynchronous workers: by one of them in its own time. Others
  // train on, and wait for it in the next round only.
  void judge_leader(LocalSteps& local, const RoundReport& round, uint64_t step);

  // Whether the last call of judge was after so many steps.
  bool has_judged(uint64_t step) const noexcept { return judged_at_ == step; }
  void forget_judged() noexcept { judged_at_ = UINT64_MAX; }

  // Fills in what the last test came to.
  void summarise(RunSummary& summary) const;

 private:
  Judge judge_in(Group& group) const;
  void conclude(const EvaluationEvent& event, double seconds);

  const Options& recipe_;
  const Task& task_;
  const TaskData& data_;
  const Timetable& timetable_;
  RunTotals& totals_;
  const std::function<void(const EvaluationEvent&)> tell_;
  uint64_t judged_at_ = UINT64_MAX;
  EvaluationEvent latest_;
};

}  // namespace thinwire
