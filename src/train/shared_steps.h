// SharedSteps: data-parallel steps: gradients are averaged, weights are equal on all ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/attack.h"
#include "train/second_moments.h"
#include "train/step_taker.h"

namespace thinwire {

// The gradient of a step is that of the mean loss over the whole batch, whatever the sizes of the
// parts: each rank's loss is weighted by its samples, since the exchange takes the mean over ranks.
class SharedSteps final : public StepTaker {
 public:
  // `moments` is of a run whose optimiser is AdamOfRanks, and null in others.
  SharedSteps(const TrainingContext& context, DataParallel& parallel, SecondMoments* moments,
              Store& store);

  StepOutcome take(uint64_t step) override;

  // Ends a step that take did not end because a rank was lost: it counted on others, and gradients
  // hold what `report` reports.
  StepOutcome conclude(const StepReport& report);

  // Leaves no trace of a step that take did not end and that counted nowhere. Without such a step
  // it does nothing.
  void abandon();

  // The norm of the mean gradient of step `step` at these weights, sent uncompressed and without a
  // memory. Weights, buffers and memories stay. Called by all ranks.
  double gradient_norm(uint64_t step);

  // Ends the exchange's debts, and with them its use: gradients become the mean over ranks of all
  // that memories and owners owe, without momentum. Returns the norm. Called by all ranks.
  double collect_owed();

  // Moves the weights along what collect_owed found, as a step of this rate does: clipped where a
  // mean is, and scaled as the optimiser scales it, without momentum and weight decay.
  void take_owed(double rate);

  // Brings back the weights before take_owed.
  void take_back();

  // Of codec "auto".
  const std::vector<AutoDecision>& decisions() const { return parallel_.exchange().decisions(); }

  const std::vector<StreamSpec>& streams() const override { return parallel_.exchange().streams(); }

  // Ranks have the same weights, and statistics of batch norm of their own.
  void align_buffers() override { context().buffers.average(context().group); }
  void show_common() override {
    context().buffers.keep();
    context().buffers.average(context().group);
  }
  void show_own() override { context().buffers.restore(); }

 private:
  void set_accumulating(bool accumulating) override {
    parallel_.set_accumulating(accumulating || clips_own() || apart_ || attack_.holds_gradients());
  }
  torch::Tensor targets_of(const Batch& batch, const torch::Tensor& outputs) override {
    return attack_.labels(batch.targets, outputs);
  }

  void end_moments();

  DataParallel& parallel_;
  SecondMoments* const moments_;
  Attack attack_;
  const bool measures_;  // the norms of what is delivered
  StepOutcome outcome_;  // of the step under way
  bool under_way_ = false;
  bool apart_ = false;  // gradients do not go to the exchange
  std::vector<torch::Tensor> before_;
};

}  // namespace thinwire
