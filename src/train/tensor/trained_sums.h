// TrainedSums: what the ranks of one network exchange in a training step, with autograd.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "thinwire/boundary.h"
#include "thinwire/group.h"
#include "thinwire/store.h"
#include "thinwire/stream.h"
#include "thinwire/torch.h"
#include "train/pipeline/stage_boundaries.h"
#include "train/tensor/rank_parts.h"
#include "train/tensor/rank_sum.h"
#include "train/tensor/split_layer.h"
#include "train/tensor/tensor_options.h"

namespace thinwire {

// The shape of one sample of what each pair of a split layer exchanges, by layer of the network: of
// the forward sum, which is of codes where there is an autoencoder, and of the backward sum.
struct SumShapes {
  std::vector<uint64_t> forward, backward;
};

// `samples` of `data` pass through all layers in front of the last split one. Throws
// AgreedError(kUnsupported) for what is not a float32 tensor of samples. Called by all ranks of
// `group`.
std::vector<SumShapes> sum_shapes(Group& group, const TensorPlan& plan, const Task& task,
                                  const Dataset& data, uint64_t samples);

// The spec of one sum but for what differs between ranks.
BoundarySpec sum_spec(const TensorParallelOptions& options, const TensorPlan& plan,
                      size_t nth_split, const std::string& pair, const SumShapes& shapes,
                      const StepShape& step, bool backward);

// The name of a pair's sums: "block1.attention".
std::string pair_name(const Task& task, const TensorPlan& plan, size_t nth_split, size_t pair);

class TrainedSums {
 public:
  // `ranks` are those of this network. All but the shapes must outlive this.
  TrainedSums(const TensorParallelOptions& options, const TensorPlan& plan, const Task& task,
              const std::vector<SumShapes>& shapes, const StepShape& step, Group& ranks,
              Store& store);
  ~TrainedSums();

  // By layer of the network; null for layers that are not split.
  std::span<LayerSums* const> layers() const noexcept { return layers_; }

  // The micro-batch whose passes follow. Its ids live as long as they do.
  void begin(const Visit& visit) { visit_ = visit; }

  // Ends a step.
  void commit();
  void rollback();

  // The first tensor of this step that this rank had and that was not finite: its place in the
  // order of all sums of the step, and what it was.
  struct Spoiled {
    uint64_t place = UINT64_MAX;
    uint32_t pair = 0;
    bool backward = false;
  };
  const Spoiled& spoiled() const noexcept { return spoiled_; }

  // Of this step; by pair, forward and then backward.
  const std::vector<SumCounters>& counters() const noexcept { return counters_; }
  const std::vector<std::string>& names() const noexcept { return names_; }  // of pairs

  // Also ends the waits of the other ranks.
  void abort(const char* why) noexcept { ranks_.abort(why); }

 private:
  class Layer;
  torch::Tensor sum(size_t pair, bool backward, const torch::Tensor& values);
  void clear();

  Group& ranks_;
  Visit visit_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<RankSum>> sums_;  // by pair, forward and then backward
  std::vector<SumCounters> counters_;
  std::vector<std::unique_ptr<Layer>> own_;
  std::vector<LayerSums*> layers_;
  uint64_t place_ = 0;
  Spoiled spoiled_;
};

}  // namespace thinwire
