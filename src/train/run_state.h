// The parts of a rank's training: network, state between steps, and the object that takes steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "thinwire/store.h"
#include "thinwire/torch.h"
#include "thinwire/trainer.h"
#include "train/checkpoint.h"
#include "train/local_steps.h"
#include "train/own_buffers.h"
#include "train/pipeline/pipeline_options.h"
#include "train/run_device.h"
#include "train/shared_steps.h"
#include "train/signal_recorder.h"
#include "train/step_taker.h"
#include "train/tensor/rank_parts.h"
#include "train/tensor/tensor_options.h"
#include "train/timetable.h"

namespace thinwire {

// Of one rank: all that a checkpoint holds besides the recipe and the totals.
class RunState {
 public:
  // The task's module is on the device.
  RunState(Task task, const RunDevice& device) : task_(std::move(task)), device_(device) {}

  // Takes weights and memories of a checkpoint, read from `folder`. Before start. Called by all
  // ranks.
  void load(Checkpoint saved, Group& group, int inside, const std::string& folder);

  // Where a run whose workers come and go starts: in the group of `generation`, which is 0 in other
  // runs.
  struct Entry {
    uint32_t generation = 0;
    Regrouped* joins = nullptr;  // of a worker that comes to others that have begun
  };

  // Makes what takes the steps, from number `first_step` on. All that is given must outlive this
  // object; `recorder` may be null. Called by all ranks. If it fails on a worker that joins, it may
  // be called again.
  void start(const Options& recipe, const PipelineOptions& pipeline,
             const TensorParallelOptions& tensor, const Timetable& timetable, const TaskData& data,
             Group& group, uint64_t first_step, SignalRecorder* recorder, const Entry& entry);

  // What data-parallel workers hold alike, and one that joins takes: weights, and what the
  // optimiser remembers, beside this rank's buffers. After start.
  StateArrays common() const;
  void take_common(const StateArrays& arrays);

  // Adds this rank's memories to a checkpoint and, on the rank that writes them, the weights that
  // are common and an optimiser that is. `with_common`, where given, is called while the module has
  // the common weights. After start. Called by all ranks.
  void save(Checkpoint& to, bool with_weights, const std::function<void()>& with_common = {});

  const Task& task() const noexcept { return task_; }
  const Store& store() const noexcept { return store_; }
  StepTaker& taker() const noexcept { return *taker_; }
  LocalSteps* local() const noexcept { return local_; }  // null unless workers step by themselves
  SharedSteps* shared() const noexcept { return shared_; }  // null unless steps are data-parallel
  DataParallel* parallel() const noexcept {
    return parallel_.get();
  }  // likewise; also before start

 private:
  const Task task_;
  const RunDevice device_;
  Store store_;
  StateArrays saved_optimizer_;
  std::unique_ptr<Group> attacking_;  // null: the run's own
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<RankParts> parts_;  // of tensor-parallel ranks
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  OwnBuffers* buffers_ = nullptr;  // in the store
  std::unique_ptr<StepTaker> taker_;
  LocalSteps* local_ = nullptr;    // the taker
  SharedSteps* shared_ = nullptr;  // the taker
};

}  // namespace thinwire
