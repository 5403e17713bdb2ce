// Buffers (running statistics of batch norm) between ranks and steps: each rank has its own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <vector>

#include "feedback/follows_ranks.h"
#include "thinwire/group.h"
#include "thinwire/state.h"
#include "train/named_tensors.h"

namespace thinwire {

// The buffers of a module. Saved by each rank; with another number of ranks each gets their mean.
// REQUIRES: the module keeps its buffer tensors.
class OwnBuffers final : public Stateful, public FollowsRanks {
 public:
  explicit OwnBuffers(const torch::nn::Module& module) : buffers_(named_buffers(module)) {}

  // Remembers the values, or brings back those remembered: a skipped step leaves no trace.
  void keep();
  void restore();

  // Floating-point buffers become their mean over ranks, added in double in rank order: the same
  // bits on every rank. Others are left as they are. Called by all ranks.
  void average(Group& group);

  StateArrays save() const override;
  // They are owed to nobody, though a resumed run takes their mean.
  double owed_squares() const override { return 0; }
  void follow_ranks(size_t /*before*/, size_t /*now*/) override {}
  Status load(const StateArrays& arrays) override;

 private:
  std::vector<NamedTensor> buffers_;
  std::vector<torch::Tensor> kept_;
};

}  // namespace thinwire
