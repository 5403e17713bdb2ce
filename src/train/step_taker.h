// StepTaker: one training step of one rank. Derived classes decide how ranks communicate in
// it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "thinwire/synchroniser.h"
#include "thinwire/torch.h"
#include "train/evaluate.h"
#include "train/label_shards.h"
#include "train/own_buffers.h"
#include "train/run_totals.h"
#include "train/timetable.h"

namespace thinwire {

struct StepOutcome {
  StepReport report;
  std::optional<RoundReport> round;  // of workers that step by themselves, when they talked
  std::optional<PipelineReport> pipeline;
  StepTimes times;
  double loss = 0;  // mean over this rank's samples; of a pipeline, over all
  double learning_rate = 0;
  double delivered_norm = 0;  // of the mean gradient, where it is measured
  uint64_t samples = 0;       // this rank's
};

// What every step needs. All must outlive the taker.
struct TrainingContext {
  const Options& recipe;
  const Timetable& timetable;
  Group& group;
  const Task& task;
  const Dataset& data;
  OwnBuffers& buffers;
  torch::optim::Optimizer& optimizer;
  const Dataset* hold_out = nullptr;  // absent where nothing is held out
};

class StepTaker {
 public:
  explicit StepTaker(const TrainingContext& context);
  virtual ~StepTaker() = default;
  StepTaker(const StepTaker&) = delete;
  StepTaker& operator=(const StepTaker&) = delete;

  // Step number `step`. A skipped step leaves weights, buffers and optimiser as they were.
  virtual StepOutcome take(uint64_t step) = 0;

  // What a report's counters are about.
  virtual const std::vector<StreamSpec>& streams() const = 0;

  // Before a test: what ranks bring into line for good.
  virtual void align_buffers() {}

  // Puts what is tested and saved, the same on all ranks, where this rank's own weights and buffers
  // are; and these back. Called by all ranks.
  virtual void show_common() = 0;
  virtual void show_own() = 0;

  // Whether each rank's optimiser is in the store, as they differ.
  virtual bool keeps_optimizer() const { return false; }

  // What else is tested of such a run. Called by all ranks, with their own weights in place.
  virtual void judge_more(const Judge& /*judge*/, EvaluationEvent& /*event*/) {}

 protected:
  // Forward and backward over this rank's part of the batch. Gradients become `copies` / `total`
  // times the sum of the gradients of its samples' losses, where `total` is of the whole batch or
  // of the part.
  enum class MeanOver { kWholeBatch, kOwnPart };
  void backward(uint64_t step, MeanOver mean, StepOutcome& outcome);

  // Whether the next backward pass is followed by another one of the same step.
  virtual void set_accumulating(bool /*accumulating*/) {}

  // What a batch's outputs should have been.
  virtual torch::Tensor targets_of(const Batch& batch, const torch::Tensor& /*outputs*/) {
    return batch.targets;
  }

  // The learning rate of `step`, set and noted.
  void begin(uint64_t step, StepOutcome& outcome);

  // Between the backward pass and the exchange: this rank's own gradients are clipped now, at norm
  // / sqrt(ranks), so that the sum of n of them is about as long as one clipped at the norm [DGC,
  // section 3.2]. Then they cannot leave before the last of them is there.
  bool clips_own() const noexcept { return clips_own_; }
  void clip_own();

  // Clips the mean, unless each rank clipped its own.
  void clip_mean();

  // clip_mean, then steps; where `skipped`, brings the buffers back
  // instead. Clears the gradients.
  void end(bool skipped, StepOutcome& outcome);

  const TrainingContext& context() const noexcept { return context_; }

 private:
  const TrainingContext context_;
  std::span<const uint64_t> own_ids(uint64_t step, SampleRange mine);

  Sampler sampler_;
  std::optional<ShardSampler> shard_;  // where workers have samples of their own
  uint64_t seed_;
  uint64_t micro_batches_;
  double clip_norm_;
  bool clips_own_;
  double slowness_ = 1;      // of this worker: run.slow
  double last_seconds_ = 0;  // that a pass took
};

}  // namespace thinwire
