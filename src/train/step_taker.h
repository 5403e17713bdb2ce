// One optimiser step of one rank: samples in, weights changed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "thinwire/torch.h"
#include "train/own_buffers.h"
#include "train/run_totals.h"
#include "train/timetable.h"

namespace thinwire {

struct StepOutcome {
  StepReport report;
  StepTimes times;
  double loss = 0;  // mean over this rank's samples
  double learning_rate = 0;
};

// Trains a task on a rank's part of every batch. The gradient of a step is that of the mean loss
// over the whole batch, whatever the sizes of the parts: each rank's loss is weighted by its
// samples.
class StepTaker {
 public:
  // All must outlive it.
  StepTaker(const Options& recipe, const Timetable& timetable, Group& group, const Task& task,
            const Dataset& data, DataParallel& parallel, OwnBuffers& buffers,
            torch::optim::Optimizer& optimizer);

  // Step number `step`. A skipped step leaves weights, buffers and optimiser as they were.
  StepOutcome take(uint64_t step);

 private:
  void backward(uint64_t step, StepOutcome& outcome);

  const Options& recipe_;
  const Timetable& timetable_;
  const Group& group_;
  const Task& task_;
  const Dataset& data_;
  DataParallel& parallel_;
  OwnBuffers& buffers_;
  torch::optim::Optimizer& optimizer_;
  Sampler sampler_;
  uint64_t seed_;
  uint64_t micro_batches_;
  double clip_norm_;
};

}  // namespace thinwire
