// OwnWorker: what a worker that trains by itself keeps: weights, optimiser, the last leader.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <span>
#include <vector>

#include "core/aligned.h"
#include "thinwire/state.h"
#include "train/describe.h"

namespace thinwire {

// The trained weights of a module, laid out as one vector. At another number of ranks each gets the
// mean of the weights, and the optimiser of one of the old ranks.
class OwnWorker final : public Stateful {
 public:
  // Moves the weights into one vector, in the module's order and on its device; the module then
  // uses its memory, for as long as it lives. All must outlive this. Throws Error(kUnsupported),
  // naming it, for a weight that is not float32.
  OwnWorker(torch::nn::Module& module, torch::optim::Optimizer& optimizer);

  // The weights in the processor's memory: of a module there its own, else a copy of what they are
  // now, which put_back copies to where the module has them.
  std::span<float> weights();
  void put_back();
  const std::vector<TrainableParameter>& parameters() const noexcept { return parameters_; }

  int64_t leader = -1;  // of the last global round
  double loss = 0;      // of the last step that had samples

  // Of asynchronous workers: the steps that this one took, and those that each had taken on average
  // by the last round of all in which it was.
  int64_t steps = 0;
  int64_t common_steps = 0;

  StateArrays save() const override;
  Status load(const StateArrays& arrays) override;

 private:
  torch::nn::Module& module_;
  torch::optim::Optimizer& optimizer_;
  std::vector<TrainableParameter> parameters_;
  torch::Tensor all_;
  torch::Tensor here_;  // all_, or a copy of it
};

}  // namespace thinwire
