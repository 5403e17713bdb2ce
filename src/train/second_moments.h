// SecondMoments: Adam's second moments of gradients as ranks have them, before they are compressed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "feedback/follows_ranks.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/state.h"
#include "train/describe.h"

namespace thinwire {

// Of one rank (docs/memories.md, Adam). What arrives of a sparse codec is the sum of many steps'
// gradients at once, whose square is not that of a gradient. So each rank keeps the second moments
// of its own gradients, and ranks average them now and then:
//
//   q <- beta2 q + (1 - beta2) g^2              of each rank, in every step that counts
//   v <- mean over ranks of q / (1 - beta2^t) / sqrt(n)
//
// after steps t = 1, 2, 4, ..., kPeriod, and then after every kPeriod-th. A rank's gradient has more
// noise than the mean of n: E g^2 is up to n times as large as that of the mean if gradients are
// independent, and no larger if they are equal. The factor 1 / sqrt(n) is the geometric mean of both
// limits.
class SecondMoments final : public Stateful, public FollowsRanks {
 public:
  static constexpr uint64_t kPeriod = 256;  // steps

  SecondMoments(const std::vector<TrainableParameter>& parameters, double beta2);

  // This rank's own gradient of a parameter, before the exchange writes the mean there. Once per
  // step for each of them.
  void add(size_t index, const torch::Tensor& gradient);

  // The step counts on all ranks, or on none.
  void end_step(bool counts);

  // Whether ranks average after the last step that counted.
  bool due() const noexcept;

  // Averages them in 16 bits. `moments` has a tensor for each parameter and gets v, with the same
  // bits on every rank; it is left as it is if the averaging is skipped. Called by all ranks.
  StepReport average(Group& group, std::shared_ptr<DeviceMemory> device,
                     std::vector<torch::Tensor>& moments) const;

  // With another number of ranks each starts with the mean of the old ones.
  StateArrays save() const override;
  bool shares_state() const noexcept override { return true; }  // the number of steps
  double owed_squares() const override { return 0; }            // they are owed to nobody
  void follow_ranks(size_t /*before*/, size_t /*now*/) override {}
  Status load(const StateArrays& arrays) override;

 private:
  std::vector<TensorSpec> specs_;
  const double beta2_;
  int64_t steps_ = 0;                      // that counted
  std::vector<torch::Tensor> own_, next_;  // fp32; where the parameters are
};

}  // namespace thinwire
