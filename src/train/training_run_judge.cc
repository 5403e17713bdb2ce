// The tests of a TrainingRun's network, during the run and at the end.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "thinwire/agreement.h"
#include "thinwire/group.h"
#include "train/evaluate.h"
#include "train/manifest.h"
#include "train/named_tensors.h"
#include "train/training_run.h"

namespace thinwire {

Score TrainingRun::score(Group& among, const Task& task, const Dataset& data) const {
  const auto batch = static_cast<uint64_t>(recipe_.options.integer("train.evaluate_batch"));
  const FetchContext context{.training = false,
                             .seed = static_cast<uint64_t>(recipe_.options.integer("train.seed")),
                             .epoch = 0};
  return evaluate(among, task, data, batch, context);
}

void TrainingRun::judge() {
  ElapsedTime judging;
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

void TrainingRun::conclude(const EvaluationEvent& event) {
  totals_.best_error = std::min(totals_.best_error, event.error);
  if (metrics_) metrics_->evaluation(event);
  if (events_.evaluation) events_.evaluation(event);
}

// Of asynchronous workers, by the first of them in its own time: others train on, and wait for it in the
// next round only.
void TrainingRun::judge_leader(const RoundReport& round) {
  ElapsedTime judging;
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

}  // namespace thinwire
