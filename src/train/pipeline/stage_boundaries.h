// StageBoundaries: the ends of the boundaries at both cuts of a stage, for each direction.
//
//              cut s - 1                  cut s
//   forward    receiver      [stage s]    sender      activations
//   backward   sender                     receiver    gradients of what arrived
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "thinwire/boundary.h"
#include "thinwire/store.h"
#include "train/pipeline/pipeline_options.h"
#include "train/pipeline/stage_plan.h"

namespace thinwire {

// A way out of the stage, or into it. Null ends where no stage is.
struct WayOut {
  BoundarySender* end = nullptr;
  BoundaryReceiver* mirror = nullptr;  // decodes what was sent, as the other stage does; or null
  size_t limit = 0;                    // bytes of a message
};
struct WayIn {
  BoundaryReceiver* end = nullptr;
  size_t limit = 0;
};

struct StageWays {
  WayIn activations_in, gradients_in;
  WayOut activations_out, gradients_out;
};

// What a step of the whole pipeline is made of.
struct StepShape {
  size_t samples = 1;  // of the largest micro-batch
  size_t micro_batches = 1;
  uint64_t seed = 0;
  uint64_t steps_per_epoch = 1;
  uint64_t first_step = 0;  // of this run
};

class StageBoundaries {
 public:
  // Ends are in the store, under the names of the layers in front of their cuts; caches that are
  // not to be saved are not. Stages that are to be decoupled have mirrors. Throws AgreedError for
  // options that do not go with the network.
  StageBoundaries(const PipelineOptions& options, const StagePlan& plan, const Task& task,
                  const StepShape& shape, Store& store);

  // While warming up nothing is compressed; but aqsgd then fills its caches, each visit a first
  // one.
  const StageWays& ways(bool warming_up) const noexcept { return warming_up ? warm_ : compressed_; }

  // Of the ways a step took. After a failed step only rollback.
  void commit(bool warming_up);
  void rollback(bool warming_up);

  // Before the first step of an epoch, while warming up: what the caches hold is of the epoch
  // before.
  void begin_epoch_of_warmup();

 private:
  struct Maker;
  void each(const StageWays& ways, const auto& visit);

  std::vector<std::unique_ptr<BoundaryEnd>> own_;  // not in the store
  std::vector<BoundaryEnd*> caches_;               // aqsgd's
  StageWays compressed_, warm_;
};

}  // namespace thinwire
