// Steps of tensor-parallel ranks: each computes a part of every split layer, for the same samples.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/store.h"
#include "train/pipeline/stage_boundaries.h"
#include "train/skipped_steps.h"
#include "train/step_taker.h"
#include "train/tensor/part_exchange.h"
#include "train/tensor/rank_parts.h"
#include "train/tensor/tensor_counters.h"
#include "train/tensor/tensor_options.h"
#include "train/tensor/trained_sums.h"

namespace thinwire {

// The gradient of a step is that of the mean loss over the whole batch. Several replicas of the
// network share a batch and, part by part, exchange their gradients after the last micro-batch. If
// anything is not finite, all ranks skip the step.
//
// What every rank has whole (embeddings, norms, biases of summed layers, the output) has the same
// bits on all: it is computed from sums, which have the same bits on all. Every rank also has
// memory for the whole network, which is built, tested and saved, but gradients and optimiser state
// of its own weights alone.
class TensorSteps final : public StepTaker {
 public:
  // The context's optimiser is over parts.module(), and the parts are of the weights of the
  // context's task. Throws what sum_shapes, RankSum and make_exchange throw. Called by all ranks.
  TensorSteps(const TrainingContext& context, const TensorParallelOptions& options,
              const TensorPlan& plan, const RankParts& parts, const ExchangeOptions& exchange,
              Store& store, uint64_t first_step);

  StepOutcome take(uint64_t step) override;
  const std::vector<StreamSpec>& streams() const override { return counters_->streams(); }
  bool keeps_optimizer() const override { return true; }

  // The parts of all ranks, in the task's module.
  void show_common() override;
  void show_own() override { context().buffers.restore(); }

  // The same network with the codecs in its sums.
  void judge_more(const Judge& judge, EvaluationEvent& event) override;

 private:
  void take_passes(uint64_t number, StepOutcome& outcome, RankCounters& counters);
  void end(bool skipped, RankCounters& counters, StepOutcome& outcome);

  const TensorParallelOptions options_;
  const TensorPlan plan_;
  const RankParts& parts_;
  const uint64_t seed_;
  const uint64_t micro_batches_;
  const double clip_norm_;
  SkippedSteps skipped_;
  Sampler sampler_;
  uint64_t last_step_;
  std::unique_ptr<Group> ranks_, peers_;  // of this network; this part of all replicas
  std::unique_ptr<PartExchange> exchange_;
  std::vector<SumShapes> shapes_;
  std::unique_ptr<TrainedSums> sums_;
  std::unique_ptr<TensorCounters> counters_;
};

}  // namespace thinwire
