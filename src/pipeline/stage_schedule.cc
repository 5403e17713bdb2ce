// The orders of operations of all schedules, and the idle share by simulating them.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/stage_schedule.h"

#include <algorithm>

#include "core/check.h"

namespace thinwire {
namespace {

// Plays all stages' operations, each as soon as its stage is free and its input is there.
class Playback {
 public:
  Playback(PipelineOrder order, std::span<const StageTimes> times, size_t micro_batches)
      : order_(order), times_(times), stages_(times.size()) {
    for (size_t s = 0; s < stages_.size(); ++s)
      stages_[s] = {.operations = stage_operations(order, stages_.size(), s, micro_batches),
                    .forward_end = std::vector<double>(micro_batches, kNever),
                    .backward_end = std::vector<double>(micro_batches, kNever)};
  }

  // When the last operation ends. Every pass over the stages takes at least one operation: orders
  // of stage_operations cannot wait for each other.
  double run() {
    for (bool going = true; going;) {
      going = false;
      for (size_t s = 0; s < stages_.size(); ++s)
        while (take_next(s)) going = true;
    }
    double end = 0;
    for (const Stage& stage : stages_) {
      THINWIRE_CHECK(stage.next == stage.operations.size(), "pipeline: stages wait for each other");
      end = std::max(end, stage.free_at);
    }
    return end;
  }

 private:
  static constexpr double kNever = -1;

  struct Stage {
    std::vector<PipelineOp> operations;
    std::vector<double> forward_end, backward_end;  // of each micro-batch
    size_t next = 0;
    double free_at = 0;
  };

  double input_at(size_t s, const PipelineOp& op) const {
    const size_t m = op.micro_batch;
    if (order_ == PipelineOrder::kDecoupled) return 0;
    if (!op.backward) return s == 0 ? 0 : stages_[s - 1].forward_end[m];
    return s + 1 == stages_.size() ? stages_[s].forward_end[m] : stages_[s + 1].backward_end[m];
  }

  bool take_next(size_t s) {
    Stage& stage = stages_[s];
    if (stage.next == stage.operations.size()) return false;
    const PipelineOp& op = stage.operations[stage.next];
    const double input = input_at(s, op);
    if (input == kNever) return false;
    const double time = op.backward ? times_[s].backward : times_[s].forward;
    stage.free_at = std::max(stage.free_at, input) + time;
    (op.backward ? stage.backward_end : stage.forward_end)[op.micro_batch] = stage.free_at;
    ++stage.next;
    return true;
  }

  const PipelineOrder order_;
  std::span<const StageTimes> times_;
  std::vector<Stage> stages_;
};

}  // namespace

std::vector<PipelineOp> stage_operations(PipelineOrder order, size_t stages, size_t stage,
                                         size_t micro_batches) {
  THINWIRE_CHECK(stage < stages && micro_batches > 0, "pipeline: no such stage, or no micro-batch");
  const size_t behind = order == PipelineOrder::kDecoupled ? 0 : stages - 1 - stage;
  const size_t ahead =
      order == PipelineOrder::kFillDrain ? micro_batches : std::min(behind, micro_batches);
  std::vector<PipelineOp> operations;
  operations.reserve(2 * micro_batches);
  for (size_t m = 0; m < ahead; ++m) operations.push_back({.backward = false, .micro_batch = m});
  for (size_t m = 0; m < micro_batches; ++m) {
    if (ahead + m < micro_batches)
      operations.push_back({.backward = false, .micro_batch = ahead + m});
    operations.push_back({.backward = true, .micro_batch = m});
  }
  return operations;
}

double idle_share(PipelineOrder order, std::span<const StageTimes> stages, size_t micro_batches) {
  THINWIRE_CHECK(!stages.empty() && micro_batches > 0, "pipeline: no stage, or no micro-batch");
  double busy = 0;
  for (const StageTimes& times : stages) {
    THINWIRE_CHECK(times.forward >= 0 && times.backward >= 0, "pipeline: a time below 0");
    busy += (times.forward + times.backward) * static_cast<double>(micro_batches);
  }
  THINWIRE_CHECK(busy > 0, "pipeline: no operation takes time");
  const double end = Playback(order, stages, micro_batches).run();
  return 1 - busy / (end * static_cast<double>(stages.size()));
}

}  // namespace thinwire
