// Collects the faults of all ranks of all pipelines, in rounds.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/stage_faults.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace thinwire {
namespace {

template <typename T>
std::vector<T> gather(Group& group, const T& mine) {
  std::vector<T> all(static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

Fault fault_of(const StagePlan& plan, size_t rank, ErrorCode code, const char* what) {
  return {.code = code,
          .rank = static_cast<int>(rank),
          .stream = std::string(what) + " of stage " + std::to_string(rank % plan.stages)};
}

}  // namespace

// What is not finite spreads, activations towards the last stage and gradients towards the first:
// it began where no stage was before.
std::optional<Fault> find_spoiled_stage(Group& group, const StagePlan& plan, const Spoiled& mine) {
  const std::vector<Spoiled> all = gather(group, mine);
  const auto fault = [&](size_t rank, const char* what) {
    return fault_of(plan, rank, ErrorCode::kNonFinite, what);
  };
  for (size_t stage = 0; stage < plan.stages; ++stage)
    for (size_t rank = stage; rank < all.size(); rank += plan.stages)
      if (all[rank].activations) return fault(rank, "activations");
  for (size_t stage = plan.stages; stage-- > 0;)
    for (size_t rank = stage; rank < all.size(); rank += plan.stages) {
      if (all[rank].gradients) return fault(rank, "gradients of activations");
      if (all[rank].weights) return fault(rank, "gradients of weights");
    }
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].auxiliary) return fault(rank, "auxiliary variables");
  return std::nullopt;
}

void agree_on_exchange(Group& group, const StagePlan& plan, StepReport& report) {
  const uint8_t mine = report.skipped ? static_cast<uint8_t>(report.fault.code) : 0;
  const std::vector<uint8_t> all = gather(group, mine);
  const auto culprit = std::find_if(all.begin(), all.end(), [](uint8_t code) { return code != 0; });
  if (culprit == all.end()) return;
  report.skipped = true;
  report.fault = fault_of(plan, static_cast<size_t>(culprit - all.begin()),
                          static_cast<ErrorCode>(*culprit), "exchange");
}

}  // namespace thinwire
