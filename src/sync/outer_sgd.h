// OuterSgd: rules whose rounds are steps of an outer optimiser. Its gradient is how far the mean
// of all workers went since the last round.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "sync/sync_rules.h"
#include "thinwire/momentum.h"

namespace thinwire {

// v <- momentum v + g,   a <- a - rate (g + momentum v): Nesterov's form as PyTorch has it; plain
// SGD at a momentum of 0.
struct OuterStep {
  float rate = 1;
  float momentum = 0;

  // One value: the anchor, its velocity and this round's gradient. Returns the new anchor.
  float operator()(float anchor, float& velocity, float gradient) const noexcept {
    velocity = momentum * velocity + gradient;
    return anchor - rate * (gradient + momentum * velocity);
  }

  // All values, in place; gradient(i) may read the i-th. `velocity` is empty if there is no
  // momentum.
  template <typename Gradient>
  void apply(std::span<float> anchor, std::span<float> velocity, const Gradient& gradient) const {
    float none = 0;
    for (size_t i = 0; i < anchor.size(); ++i)
      anchor[i] = (*this)(anchor[i], velocity.empty() ? none : velocity[i], gradient(i));
  }
};

// The memory of lossy codecs: `usual`, or the one that has the outer step's momentum, too.
std::string outer_memory(const SynchroniserOptions& options, const OuterStep& outer,
                         const std::string& usual = "residual");

// Where the momentum of the outer step acts (SynchroniserOptions::momentum); `feedback` is the
// memory of lossy codecs unless the options name one. And what of the step is left to the mean.
MomentumPlan plan_momentum(const SynchroniserOptions& given, const OuterStep& outer,
                           const std::string& feedback);
OuterStep step_on_mean(OuterStep outer, const MomentumPlan& plan);

// Every `period` steps: g = a - mean of all x, a and v as above, and all workers go on from a. A
// lossy codec carries x - a through the exchange, whose memory keeps what was not sent, and has the
// momentum where place_momentum puts it there: then each worker's v is its own, as in SparseLoCo
// [arXiv:2508.15706].
class OuterSgd final : public SyncRule {
 public:
  // `feedback` is the memory of lossy codecs, unless the options name one.
  OuterSgd(const SyncSetup& setup, const std::string& name, uint64_t period, OuterStep outer,
           std::string feedback = "residual");

 private:
  OuterSgd(const SyncSetup& setup, const std::string& name, uint64_t period, OuterStep outer,
           std::string feedback, MomentumPlan momentum);
  std::string shared_memory() const override;
  void join() override;
  std::optional<RoundReport> step(std::span<float> parameters, double loss) override;
  bool own_centre(std::span<float> out) override;

  const uint64_t period_;
  const std::string feedback_;
  const MomentumPlan momentum_;
  const OuterStep outer_;
  const bool lossless_;  // what is sent are the weights themselves
  AlignedVector<float>& anchor_;
  AlignedVector<float>& velocity_;  // empty without momentum
  std::unique_ptr<ReplicaMean> mean_;
};

}  // namespace thinwire
