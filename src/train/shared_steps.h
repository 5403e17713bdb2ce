// SharedSteps: data-parallel steps: gradients are averaged, weights are equal on all ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/step_taker.h"

namespace thinwire {

// The gradient of a step is that of the mean loss over the whole batch, whatever the sizes of the parts:
// each rank's loss is weighted by its samples, since the exchange takes the mean over ranks.
class SharedSteps final : public StepTaker {
 public:
  SharedSteps(const TrainingContext& context, DataParallel& parallel)
      : StepTaker(context), parallel_(parallel) {}

  StepOutcome take(uint64_t step) override {
    StepOutcome outcome;
    begin(step, outcome);
    backward(step, MeanOver::kWholeBatch, outcome);
    if (clips_own()) clip_own();
    outcome.report = parallel_.finish();
    end(outcome.report.skipped);
    return outcome;
  }

  const std::vector<StreamSpec>& streams() const override { return parallel_.exchange().streams(); }

  // Ranks have the same weights, and statistics of batch norm of their own.
  void settle() override { context().buffers.average(context().group); }
  void show_common() override {
    context().buffers.keep();
    context().buffers.average(context().group);
  }
  void show_own() override { context().buffers.restore(); }

 private:
  void set_accumulating(bool accumulating) override {
    parallel_.set_accumulating(accumulating || clips_own());
  }

  DataParallel& parallel_;
};

}  // namespace thinwire
