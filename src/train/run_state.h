// The parts of a rank's training: network, state between steps, and the object that takes steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>

#include "thinwire/store.h"
#include "thinwire/torch.h"
#include "thinwire/trainer.h"
#include "train/checkpoint.h"
#include "train/local_steps.h"
#include "train/own_buffers.h"
#include "train/pipeline/pipeline_options.h"
#include "train/shared_steps.h"
#include "train/signal_recorder.h"
#include "train/step_taker.h"
#include "train/timetable.h"

namespace thinwire {

// Of one rank: all that a checkpoint holds besides the recipe and the totals.
class RunState {
 public:
  explicit RunState(Task task) : task_(std::move(task)) {}

  // Takes weights and memories of a checkpoint, read from `folder`. Before start. Called by all ranks.
  void load(Checkpoint saved, Group& group, int inside, const std::string& folder);

  // Makes what takes the steps, from number `first_step` on. All that is given must outlive this object;
  // `recorder` may be null. Called by all ranks.
  void start(const Options& recipe, const PipelineOptions& pipeline, const Timetable& timetable,
             const TaskData& data, Group& group, uint64_t first_step, SignalRecorder* recorder);

  // Adds this rank's memories to a checkpoint and, on the rank that writes them, the weights that are common
  // and an optimiser that is. After start. Called by all ranks.
  void save(Checkpoint& to, bool with_weights);

  const Task& task() const noexcept { return task_; }
  const Store& store() const noexcept { return store_; }
  StepTaker& taker() const noexcept { return *taker_; }
  LocalSteps* local() const noexcept { return local_; }  // null unless workers step by themselves
  SharedSteps* shared() const noexcept { return shared_; }  // null unless steps are data-parallel

 private:
  const Task task_;
  Store store_;
  StateArrays saved_optimizer_;
  std::unique_ptr<Group> attacking_;  // null: the run's own
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  OwnBuffers* buffers_ = nullptr;  // in the store
  std::unique_ptr<StepTaker> taker_;
  LocalSteps* local_ = nullptr;    // the taker
  SharedSteps* shared_ = nullptr;  // the taker
};

}  // namespace thinwire
