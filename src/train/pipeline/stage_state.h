// StageState: the optimiser's state for one stage's weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include "thinwire/state.h"
#include "train/optimizer.h"

namespace thinwire {

class StageState final : public Stateful {
 public:
  // Both outlive this; the optimiser may be over other stages' weights too.
  StageState(const torch::nn::Module& stage, torch::optim::Optimizer& optimizer)
      : stage_(stage), optimizer_(optimizer) {}

  StateArrays save() const override { return save_optimizer(optimizer_, stage_); }
  Status load(const StateArrays& arrays) override {
    return load_optimizer(optimizer_, stage_, arrays);
  }

 private:
  const torch::nn::Module& stage_;
  torch::optim::Optimizer& optimizer_;
};

}  // namespace thinwire
