// OutsideStep: means from sums, and the verdict of all ranks.
// SPDX-License-Identifier: Apache-2.0
#include "plan/outside_step.h"

#include <algorithm>
#include <string>

#include "core/check.h"
#include "exchange/rules/sum_to_mean.h"
#include "exchange/runner/dense_bytes.h"
#include "exchange/step/stopwatch.h"
#include "exchange/step/verdict.h"

namespace thinwire {
namespace {

size_t stream_of(const std::vector<StreamSpec>& streams, const std::string& tensor) {
  const auto has = [&](const StreamSpec& stream) {
    return std::any_of(stream.tensors.begin(), stream.tensors.end(),
                       [&](const TensorSpec& one) { return one.name == tensor; });
  };
  return static_cast<size_t>(std::find_if(streams.begin(), streams.end(), has) - streams.begin());
}

}  // namespace

void OutsideStep::add(size_t tensor, std::span<float> values) {
  THINWIRE_CHECK(tensor < values_.size(), "auto: there is no tensor " + std::to_string(tensor));
  THINWIRE_CHECK(!values_[tensor],
                 "auto: tensor " + std::to_string(tensor) + " was started twice in a step");
  if (count_ == 0) began_ = std::chrono::steady_clock::now();
  values_[tensor] = values;
  ++count_;
}

void OutsideStep::clear() {
  std::fill(values_.begin(), values_.end(), std::nullopt);
  count_ = 0;
}

StepReport OutsideStep::finish(Group& channel, const std::vector<StreamSpec>& streams,
                               const std::vector<TensorSpec>& tensors, uint64_t step,
                               bool asks_to_skip) {
  const auto missing = std::find(values_.begin(), values_.end(), std::nullopt);
  THINWIRE_CHECK(missing == values_.end(),
                 "auto: the step ends without tensor '" +
                     tensors[static_cast<size_t>(missing - values_.begin())].name + "'");
  StepReport report;
  report.step = step;
  report.outside = true;
  report.wire_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  const auto ranks = static_cast<size_t>(channel.size());
  size_t total = 0;
  FaultLog faults;
  if (asks_to_skip) faults.ask_to_skip(channel.rank());
  {
    const Stopwatch watch(report.decompress_seconds);
    for (size_t i = 0; i < values_.size(); ++i) {
      total += values_[i]->size();
      if (!sum_to_mean(*values_[i], ranks))
        faults.add(ErrorCode::kNonFinite, stream_of(streams, tensors[i].name), -1);
    }
  }
  const Verdict verdict =
      read_verdict(worst_of_all(channel, faults.word()), channel.size(), streams.size(), "auto");
  report.skipped = verdict.code != ErrorCode::kOk || verdict.asked;
  report.participants = ranks;
  if (report.skipped)
    report.fault = {.code = verdict.code,
                    .rank = verdict.rank,
                    .stream = verdict.asked ? "" : streams[verdict.stream].name};
  for (const auto& values : values_)
    if (report.skipped) std::fill(values->begin(), values->end(), 0.0f);
  report.dense_bytes = dense_fp32_bytes(total, ranks, Results::kFull);
  report.sent_bytes = report.between_bytes = report.received_bytes = report.dense_bytes;
  for (const StreamSpec& stream : streams)
    report.streams.push_back({.values = stream.count(),
                              .kept = stream.count(),
                              .payload_bytes = sizeof(float) * stream.count(),
                              .codec = "fp32"});
  clear();
  return report;
}

}  // namespace thinwire
