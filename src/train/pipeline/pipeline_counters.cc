// Collects one small message of counters from every rank, and adds them up on all.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/pipeline_counters.h"

#include <type_traits>
#include <utility>

#include "pipeline/boundary_message.h"
#include "train/pipeline/boundary_counters.h"

namespace thinwire {
namespace {

constexpr uint64_t kLengthBytes = 8;  // in front of each message, see stage_links.cc

void add(PipelineReport::Direction& to, const StageCounters::Sends& from) {
  to.values += from.values;
  to.payload_bytes += from.payload_bytes;
  to.message_bytes += from.message_bytes;
  to.full += from.full;
}

// Counts the values that an encoder had in the place of those of its code.
void count_decoded(const StagePlan& plan, size_t cut, StageCounters::Sends& sends,
                   uint64_t& dense_bytes) {
  const uint64_t samples = sends.values / count_of(plan.crossing[cut]);
  const uint64_t values = samples * count_of(plan.encoded_from[cut]);
  dense_bytes += (values - sends.values) * sizeof(float);
  sends.values = values;
}

}  // namespace

void StageCounters::add(const Departed& departed, bool backward) {
  Sends& sends = backward ? gradients : activations;
  sends.values += departed.values;
  sends.message_bytes += departed.sent.size;
  if (departed.sent.finite) sends.payload_bytes += departed.sent.size - kBodyOffset;
  sends.full += departed.sent.full;
  sent_bytes += departed.sent.size + kLengthBytes;
  dense_bytes += departed.values * sizeof(float);
  compress += departed.compress_seconds;
  decompress += departed.decompress_seconds;
}

PipelineCounters::PipelineCounters(const StagePlan& plan, const Task& task, const StepShape& shape,
                                   const std::vector<StreamSpec>& exchange)
    : plan_(plan) {
  for (size_t cut = 0; cut + 1 < plan.stages; ++cut) {
    names_.push_back(plan.cut_name(task, cut));
    std::vector<uint64_t> extents = plan.encoded_from[cut];
    extents.insert(extents.begin(), shape.samples * shape.micro_batches);
    for (const char* direction : {"/forward", "/backward"})
      streams_.push_back(single_tensor({.name = names_.back() + direction, .shape = extents}));
  }
  if (plan.replicas > 1) streams_.insert(streams_.end(), exchange.begin(), exchange.end());
}

PipelineCounters::Sum PipelineCounters::gather(Group& group, const StageCounters& mine,
                                               StepReport& report) const {
  static_assert(std::is_trivially_copyable_v<StageCounters>);
  std::vector<StageCounters> all(static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));

  Sum sum;
  StageCounters total;
  for (const std::string& name : names_)
    sum.pipeline.boundaries.push_back({.name = name, .forward = {}, .backward = {}});
  for (size_t rank = 0; rank < all.size(); ++rank) {
    StageCounters& one = all[rank];
    const size_t stage = rank % plan_.stages;
    if (stage + 1 < plan_.stages) {
      count_decoded(plan_, stage, one.activations, one.dense_bytes);
      add(sum.pipeline.boundaries[stage].forward, one.activations);
    }
    if (stage > 0) {
      count_decoded(plan_, stage - 1, one.gradients, one.dense_bytes);
      add(sum.pipeline.boundaries[stage - 1].backward, one.gradients);
    }
    total.sent_bytes += one.sent_bytes;
    total.dense_bytes += one.dense_bytes;
    total.samples += one.samples;
    total.loss += one.loss;
    total.penalty += one.penalty;
    total.seconds += one.seconds;
    total.wait += one.wait;
  }
  if (total.samples > 0) {
    sum.loss = total.loss / static_cast<double>(total.samples);
    sum.penalty = total.penalty / static_cast<double>(total.samples);
  }
  if (total.seconds > 0) sum.pipeline.idle_share = total.wait / total.seconds;

  report.sent_bytes = total.sent_bytes / all.size();
  report.received_bytes = report.sent_bytes;  // all that is sent arrives
  report.dense_bytes = total.dense_bytes / all.size();
  report.compress_seconds += mine.compress;
  report.decompress_seconds += mine.decompress;
  report.wait_seconds += mine.wait;
  report_boundaries(sum.pipeline, plan_.replicas > 1, report);
  return sum;
}

}  // namespace thinwire
