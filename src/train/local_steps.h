// LocalSteps: steps of workers that train by themselves and communicate in rounds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "thinwire/store.h"
#include "thinwire/synchroniser.h"
#include "train/own_worker.h"
#include "train/step_taker.h"

namespace thinwire {

// Each rank takes the gradient of the mean loss over its own part of the batch, and its own step.
// Its weights are one vector in memory, which the synchroniser reads and writes without a copy. A
// rank whose own gradient is not finite leaves its weights, and talks with the others all the same.
class LocalSteps final : public StepTaker {
 public:
  // Begins with the weights of the module, which are the same on all ranks, or with those that the
  // store has. Throws whatever make_synchroniser throws, and Error(kUnsupported), naming it, for a
  // weight that is not float32.
  LocalSteps(const TrainingContext& context, Store& store, const SynchroniserOptions& options);

  // Where the others go on without this worker if it fails, it tells them and throws SurvivedError.
  StepOutcome take(uint64_t step) override;
  const std::vector<StreamSpec>& streams() const override { return streams_; }

  // The synchroniser's centre, with batch norm measured anew under it.
  void show_common() override;
  void show_own() override;
  bool keeps_optimizer() const override { return true; }

  // How far workers are from what they have in common, and the leader's own network.
  void judge_more(const Judge& judge, EvaluationEvent& event) override;

  // The leader of a global round that has just counted, as all who were there took it: its network,
  // with batch norm measured anew, tested by this rank alone, as `judge` does without the others.
  void judge_leader(const RoundReport& round, const Judge& judge, EvaluationEvent& event);

  // Of workers that do not take the same number of steps: whether the run is over for this one. It
  // is when all together have taken their steps, or this one all of theirs.
  bool asynchronous() const noexcept { return sync_->asynchronous_period() != 0; }
  bool is_over() const noexcept { return over_; }
  // That this one took, earlier parts of a resumed run included.
  uint64_t own_steps() const noexcept { return static_cast<uint64_t>(worker_->steps); }
  // The steps that each has taken on average when `round` is held.
  uint64_t steps_before(const RoundReport& round) const noexcept {
    return (round.round + 1) * sync_->asynchronous_period();
  }
  // Takes no more steps. From then on `group` is of those that left, who judge and save together.
  void leave();
  Group& group() noexcept { return *group_; }
  // Known to rank 0, and after leave to all: who was lost, and, to rank 0, why.
  std::vector<LostWorker> lost() const;

 private:
  // A copy of everything that a network is.
  struct Shown {
    AlignedVector<float> weights;
    std::vector<torch::Tensor> buffers;
  };

  // The best worker of the last global round; nobody before the first, or where none is chosen.
  std::optional<int> leader();

  // Puts the weights and buffers of `rank` in the place of this rank's own. Called by all ranks.
  void show_worker(int rank);

  // Root of the mean over workers of |x - common|^2. Called by all ranks.
  double spread();

  // What the method is told besides `options`: how to judge this worker by held-out samples.
  SynchroniserOptions with_judge(SynchroniserOptions options) const;
  StepOutcome take_one(uint64_t step);
  void adjust_gradients();
  void count(const RoundReport& round, StepOutcome& outcome);
  void form_common();
  void measure_norms_in(Group& group);
  void show(const Shown& what);
  Shown shown() const;
  std::span<float> weights() { return worker_->weights(); }
  void set_weights(std::span<const float> weights);

  Group* group_;  // all, or those that left
  std::unique_ptr<Group> left_;
  std::vector<int> ranks_;  // of those that left, in the whole; empty: all
  std::vector<TensorSpec> tensors_;
  std::vector<StreamSpec> streams_;
  OwnWorker* worker_ = nullptr;  // in the store
  std::unique_ptr<Synchroniser> sync_;
  AlignedVector<float> gradient_;  // of methods that adjust it
  std::optional<Shown> own_;       // while something else is shown
  std::optional<Shown> common_;    // as of the last step
  uint64_t dense_bytes_ = 0;       // that a dense exchange would send per step
  int bad_ = 0;                    // own steps in a row that were not finite
  int max_bad_ = 0;
  bool over_ = false;
};

}  // namespace thinwire
