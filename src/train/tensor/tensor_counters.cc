// Collects the counters of all ranks in two small messages, and adds them up on all.
// SPDX-License-Identifier: Apache-2.0
#include "train/tensor/tensor_counters.h"

#include <span>
#include <type_traits>
#include <utility>

#include "train/pipeline/boundary_counters.h"

namespace thinwire {
namespace {

constexpr uint64_t kLengthBytes = 8;  // in front of each message: Group::all_gather_v

template <typename T>
std::vector<T> gather_of(Group& group, std::span<const T> mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(mine.size() * static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
  return all;
}

}  // namespace

TensorCounters::TensorCounters(const TensorPlan& plan, const Task& task,
                               const std::vector<std::string>& pairs,
                               const std::vector<SumShapes>& shapes, const StepShape& step,
                               const std::vector<StreamSpec>& exchange)
    : plan_(plan), names_(pairs) {
  size_t pair = 0;
  for (const size_t layer : plan.split) {
    const SplitLayer& split = *split_layer_of(task.layers[layer]);
    for (size_t i = 0; i < split.pairs().size(); ++i, ++pair) {
      for (const bool backward : {false, true}) {
        std::vector<uint64_t> extents = backward ? shapes[pair].backward : shapes[pair].forward;
        coded_.push_back(count_of(extents));
        if (!backward) extents.back() = static_cast<uint64_t>(split.features());
        whole_.push_back(count_of(extents));
        extents.insert(extents.begin(), step.samples * step.micro_batches);
        streams_.push_back(single_tensor(
            {.name = names_[pair] + (backward ? "/backward" : "/forward"), .shape = extents}));
      }
    }
  }
  if (plan.replicas > 1) streams_.insert(streams_.end(), exchange.begin(), exchange.end());
}

TensorCounters::Sum TensorCounters::gather(Group& group, const RankCounters& mine,
                                           const std::vector<SumCounters>& sums,
                                           StepReport& report) const {
  const auto ranks = gather_of(group, std::span(&mine, 1));
  const auto all_sums = gather_of(group, std::span(sums));

  Sum sum;
  for (const std::string& name : names_)
    sum.pairs.boundaries.push_back({.name = name, .forward = {}, .backward = {}});
  uint64_t sent = 0, dense = 0, samples = 0;
  double seconds = 0, wait = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankCounters& one = ranks[rank];
    sent += one.sent_bytes;
    dense += one.dense_bytes;
    seconds += one.seconds;
    if (rank % plan_.ranks == 0) {  // ranks of one network have the same loss
      samples += one.samples;
      sum.loss += one.loss;
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      const SumCounters& counters = all_sums[rank * sums.size() + i];
      auto& boundary = sum.pairs.boundaries[i / 2];
      auto& way = i % 2 == 0 ? boundary.forward : boundary.backward;
      const uint64_t values = counters.values / coded_[i] * whole_[i];
      way.values += values;
      way.payload_bytes += counters.payload_bytes;
      way.message_bytes += counters.message_bytes;
      sent += counters.message_bytes + counters.messages * kLengthBytes;
      dense += values * sizeof(float);
      wait += counters.wait;
    }
  }
  if (samples > 0) sum.loss /= static_cast<double>(samples);
  if (seconds > 0) sum.pairs.idle_share = wait / seconds;

  report.sent_bytes = sent / ranks.size();
  report.received_bytes = report.sent_bytes;  // all that is sent arrives
  report.dense_bytes = dense / ranks.size();
  for (const SumCounters& counters : sums) {
    report.compress_seconds += counters.compress;
    report.decompress_seconds += counters.decompress;
    report.wait_seconds += counters.wait;
  }
  report_boundaries(sum.pairs, plan_.replicas > 1, report);
  return sum;
}

}  // namespace thinwire
