// StageAuxiliaries: the auxiliary variables at both cuts of a stage, as tensors.
//
//              cut s - 1                         cut s
//              lambda, the input  [stage s] x    lambda, which the penalty pulls x towards
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pipeline/auxiliary_variables.h"
#include "thinwire/store.h"
#include "train/pipeline/pipeline_options.h"
#include "train/pipeline/pipeline_step.h"
#include "train/pipeline/stage_plan.h"

namespace thinwire {

// The stage on the other side of a cut has the same variables, bit for bit.
class StageAuxiliaries {
 public:
  // In the store, if caches are saved. REQUIRES: options.decoupling.
  StageAuxiliaries(const PipelineOptions& options, const StagePlan& plan, const Task& task,
                   Store& store);

  // Whether all these samples have variables. The same on all stages of a pipeline.
  bool hold(std::span<const uint64_t> ids) const;

  // Of the cut in front of this stage.
  torch::Tensor inputs(std::span<const uint64_t> ids) const;

  // At the cut behind this stage, for its outputs x: the sum of the samples' penalties, and the
  // gradient with respect to x of `share` times that sum.
  struct Penalty {
    double sum = 0;
    torch::Tensor gradient;
  };
  Penalty penalty(const torch::Tensor& outputs, std::span<const uint64_t> ids, double share) const;

  // Stages what the variables of the step's samples become, from what crossed. Returns whether they
  // are finite; without it the step must be rolled back. Throws what AuxiliaryVariables throw.
  [[nodiscard]] bool stage(const PipelineStep& step);
  void commit();
  void rollback();

 private:
  // One cut beside this stage; null where no cut is.
  struct Cut {
    AuxiliaryVariables* variables = nullptr;
    std::vector<int64_t> shape;  // of one sample

    torch::Tensor read(std::span<const uint64_t> ids) const;
  };

  static bool stage(const PipelineStep& step, const std::vector<Crossed>& crossed, Cut& cut);
  void each(const auto& visit);

  const double beta_;
  Cut before_, after_;
  std::vector<std::unique_ptr<AuxiliaryVariables>> own_;  // not in the store
};

}  // namespace thinwire
