// Computes the scores of a run's network, and writes them down.
// SPDX-License-Identifier: Apache-2.0
#include "train/run_judge.h"

#include <algorithm>
#include <string>
#include <utility>

#include "thinwire/agreement.h"
#include "thinwire/group.h"
#include "train/elapsed_time.h"
#include "train/named_tensors.h"

namespace thinwire {

RunJudge::RunJudge(const Options& recipe, const Task& task, const TaskData& data,
                   const Timetable& timetable, RunTotals& totals,
                   std::function<void(const EvaluationEvent&)> tell)
    : recipe_(recipe),
      task_(task),
      data_(data),
      timetable_(timetable),
      totals_(totals),
      tell_(std::move(tell)) {}

void RunJudge::resume() {
  latest_.error = totals_.last_error;
  latest_.loss = totals_.last_loss;
  if (totals_.last_hold_out_error <= 1) latest_.hold_out_error = totals_.last_hold_out_error;
  if (totals_.last_compressed_error <= 1) {
    latest_.compressed_error = totals_.last_compressed_error;
    latest_.compressed_loss = totals_.last_compressed_loss;
  }
  if (totals_.last_compressed_hold_out_error <= 1)
    latest_.compressed_hold_out_error = totals_.last_compressed_hold_out_error;
}

Judge RunJudge::judge_in(Group& group) const {
  const auto score = [this, &group](const Task& task, const Dataset& data) {
    const auto batch = static_cast<uint64_t>(recipe_.integer("train.evaluate_batch"));
    const FetchContext context{.training = false,
                               .seed = static_cast<uint64_t>(recipe_.integer("train.seed")),
                               .epoch = 0};
    return evaluate(group, task, data, batch, context);
  };
  return {.score = score, .test = data_.test, .hold_out = data_.hold_out};
}

EvaluationEvent RunJudge::look(StepTaker& taker, Group& group, uint64_t step,
                               const std::string& weights) {
  taker.align_buffers();
  taker.show_common();
  require_agreement(group, weights, checksum_lines(trained_weights(*task_.module)));
  const Judge judge = judge_in(group);
  const Score test = judge.score(task_, judge.test);
  EvaluationEvent event{.step = step,
                        .epoch = timetable_.epoch(step),
                        .loss = test.loss,
                        .error = test.error,
                        .samples = test.samples};
  if (judge.hold_out != nullptr) event.hold_out_error = judge.score(task_, *judge.hold_out).error;
  taker.show_own();
  taker.judge_more(judge, event);
  return event;
}

void RunJudge::judge(StepTaker& taker, Group& group, uint64_t step, const std::string& weights) {
  ElapsedTime judging;
  latest_ = look(taker, group, step, weights);
  judged_at_ = step;
  totals_.last_error = latest_.error;
  totals_.last_loss = latest_.loss;
  totals_.last_hold_out_error = latest_.hold_out_error.value_or(2);
  totals_.last_compressed_error = latest_.compressed_error.value_or(2);
  totals_.last_compressed_loss = latest_.compressed_loss.value_or(0);
  totals_.last_compressed_hold_out_error = latest_.compressed_hold_out_error.value_or(2);
  conclude(latest_, judging.seconds());
}

void RunJudge::judge_leader(LocalSteps& local, const RoundReport& round, uint64_t step) {
  ElapsedTime judging;
  const auto alone = make_local_groups(1);
  EvaluationEvent event{.step = step, .epoch = timetable_.epoch(local.steps_before(round))};
  local.judge_leader(round, judge_in(*alone[0]), event);
  conclude(event, judging.seconds());
}

void RunJudge::conclude(const EvaluationEvent& event, double seconds) {
  totals_.evaluate_seconds += seconds;
  totals_.best_error = std::min(totals_.best_error, event.error);
  tell_(event);
}

void RunJudge::summarise(RunSummary& summary) const {
  summary.final_test_error = latest_.error;
  summary.final_test_loss = latest_.loss;
  summary.final_hold_out_error = latest_.hold_out_error;
  summary.final_compressed_test_error = latest_.compressed_error;
  summary.final_compressed_test_loss = latest_.compressed_loss;
  summary.final_compressed_hold_out_error = latest_.compressed_hold_out_error;
}

}  // namespace thinwire
