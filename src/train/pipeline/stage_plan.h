// StagePlan: which worker computes which layers of a network that is cut into stages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/state.h"
#include "thinwire/store.h"
#include "thinwire/torch.h"
#include "train/pipeline/pipeline_options.h"

namespace thinwire {

// Rank r is stage r % stages of pipeline r / stages: neighbours in a pipeline are neighbours by
// rank.
struct StagePlan {
  size_t stages = 1, stage = 0;
  size_t replicas = 1, replica = 0;
  std::vector<size_t>
      starts;  // first layer of each stage, and behind the last one the number of layers
  // Behind each stage but the last, the shape of one sample: of what crosses, and of what an
  // encoder made that of.
  std::vector<std::vector<uint64_t>> crossing, encoded_from;

  bool is_first() const noexcept { return stage == 0; }
  bool is_last() const noexcept { return stage + 1 == stages; }
  size_t begin() const { return starts[stage]; }
  size_t end() const { return starts[stage + 1]; }
  // The last layer in front of the cut.
  const std::string& cut_name(const Task& task, size_t cut) const {
    return task.layers[starts[cut + 1] - 1].name;
  }
  // The rank of a stage of this rank's pipeline.
  int rank_of(size_t a_stage) const noexcept {
    return static_cast<int>(replica * stages + a_stage);
  }
};

// The layers [begin, end) under their own names, so that their weights are called as in the whole
// network.
std::shared_ptr<torch::nn::Module> stage_module(const Task& task, size_t begin, size_t end);

// Where a network is cut, and what crosses.
struct StageCut {
  std::vector<size_t> starts;  // as those of StagePlan
  std::vector<std::vector<uint64_t>> crossing;
};

// As plan_stages finds it, on one rank. Throws Error.
StageCut cut_stages(const PipelineOptions& options, const Task& task, const Dataset& data,
                    uint64_t samples);

// Cuts the network as the options say; the store keeps where, so that a resumed run measures no
// times again. `samples` of `data` pass through all layers once, to learn the shapes of what
// crosses. Throws AgreedError, on all ranks: kBadOption for ranks that are not whole pipelines, for
// a network that cannot be cut, and for a wrong cut; kUnsupported for what is not a float32 tensor
// of samples, and for a weight of two stages. Called by all ranks.
StagePlan plan_stages(const PipelineOptions& options, Group& group, Store& store, const Task& task,
                      const Dataset& data, uint64_t samples);

}  // namespace thinwire
