// The operations of each stage of a pipeline, in order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace thinwire {

// All take micro-batches in order in either direction. The first two do all forward passes of a
// micro-batch from the first stage to the last, then its backward passes from the last to the
// first. In the third no operation has its input from another stage.
enum class PipelineOrder : uint8_t {
  kFillDrain,  // every forward, then every backward [Huang et al., GPipe, NeurIPS 2019]
  kOneFOneB,   // a backward as soon as there can be one [Narayanan et al., PipeDream, SOSP 2019]
  kDecoupled,  // each backward behind its own forward, on auxiliary variables [Sun et al., 2020]
};

struct PipelineOp {
  bool backward = false;
  size_t micro_batch = 0;  // from 0

  friend bool operator==(const PipelineOp&, const PipelineOp&) = default;
};

// What `stage` of `stages` does in one step. Decoupled, every stage does what a single one would.
// With 1F1B it begins with min(stages - 1 - stage, micro_batches) forward passes, then alternates,
// and so never keeps more than stages - stage micro-batches. REQUIRES: stage < stages,
// micro_batches > 0.
std::vector<PipelineOp> stage_operations(PipelineOrder order, size_t stages, size_t stage,
                                         size_t micro_batches);

// Seconds that a micro-batch takes in a stage.
struct StageTimes {
  double forward = 1;
  double backward = 2;
};

// The share of all stages' time, from the first operation to the last, in which they wait, if
// nothing but computation takes time. With equal stages it is (stages - 1) / (micro_batches +
// stages - 1), with fill-drain and with 1F1B alike. Decoupled, it is 0. REQUIRES: at least one
// stage; times at least 0, not all 0.
double idle_share(PipelineOrder order, std::span<const StageTimes> stages, size_t micro_batches);

}  // namespace thinwire
