// RunTotals: adds up steps, computes ratios, and is written and read as JSON.
// SPDX-License-Identifier: Apache-2.0
#include "train/run_totals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace thinwire {

// nlohmann/json finds these by argument-dependent lookup.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(KindTotals, values, kept, payload_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunTotals, steps, skipped, samples, values, kept, target,
                                   payload_bytes, frame_bytes, dense_bytes, sent_bytes,
                                   peak_sent_bytes, received_bytes, inside_bytes, between_bytes,
                                   fetch_seconds, compute_seconds, compress_seconds, wire_seconds,
                                   decompress_seconds, wait_seconds, evaluate_seconds, seconds,
                                   best_error, last_error, last_loss, last_hold_out_error,
                                   last_compressed_error, last_compressed_loss,
                                   last_compressed_hold_out_error, delivered_norm,
                                   lost_debt_squared, kinds)

namespace {

std::string kind_of(const StreamSpec& stream) {
  for (const TensorSpec& tensor : stream.tensors)
    if (tensor.kind != stream.tensors.front().kind) return "mixed";
  return std::string(to_string(stream.tensors.front().kind));
}

// A step that is skipped before a stream has its turn counts the stream's values, and no bytes that
// they would be compared with.
bool was_encoded(const StepReport& report, const StreamCounters& stream) {
  return !report.skipped || stream.payload_bytes > 0;
}

double ratio(double over, double under, double otherwise) {
  return under == 0 ? otherwise : over / under;
}

}  // namespace

double KindTotals::codec_ratio() const noexcept {
  return ratio(4.0 * static_cast<double>(values), static_cast<double>(payload_bytes), 1);
}

Kinds sum_kinds(const std::vector<StreamSpec>& streams, const StepReport& report) {
  Kinds kinds;
  for (size_t i = 0; i < report.streams.size(); ++i) {
    if (streams[i].tensors.empty() || !was_encoded(report, report.streams[i])) continue;
    KindTotals& kind = kinds[kind_of(streams[i])];
    kind.values += report.streams[i].values;
    kind.kept += report.streams[i].kept;
    kind.payload_bytes += report.streams[i].payload_bytes;
  }
  return kinds;
}

void RunTotals::add(const StepReport& report, const Kinds& kinds_now, const StepTimes& times) {
  ++steps;
  skipped += report.skipped;
  for (const StreamCounters& stream : report.streams) {
    frame_bytes += stream.frame_bytes;
    if (!was_encoded(report, stream)) continue;
    values += stream.values;
    if (stream.target != 0) kept += stream.kept;
    target += stream.target;
    payload_bytes += stream.payload_bytes;
  }
  dense_bytes += report.dense_bytes;
  sent_bytes += report.sent_bytes;
  peak_sent_bytes = std::max(peak_sent_bytes, report.sent_bytes);
  received_bytes += report.received_bytes;
  inside_bytes += report.inside_bytes;
  between_bytes += report.between_bytes;
  fetch_seconds += times.fetch;
  compute_seconds += times.compute;
  compress_seconds += report.compress_seconds;
  wire_seconds += report.wire_seconds;
  decompress_seconds += report.decompress_seconds;
  wait_seconds += report.wait_seconds;
  for (const auto& [name, now] : kinds_now) {
    KindTotals& kind = kinds[name];
    kind.values += now.values;
    kind.kept += now.kept;
    kind.payload_bytes += now.payload_bytes;
  }
}

void RunTotals::summarise(RunSummary& summary) const {
  const auto number = [](uint64_t whole) { return static_cast<double>(whole); };
  const double count = number(steps);
  summary.steps = steps;
  summary.skipped_steps = skipped;
  summary.seconds = seconds;
  summary.best_test_error = std::min(best_error, 1.0);
  summary.dense_bytes_per_step = ratio(number(dense_bytes), count, 0);
  summary.sent_bytes_per_step = ratio(number(sent_bytes), count, 0);
  summary.peak_sent_bytes = peak_sent_bytes;
  summary.inside_bytes_per_step = ratio(number(inside_bytes), count, 0);
  summary.between_bytes_per_step = ratio(number(between_bytes), count, 0);
  summary.codec_ratio = ratio(4 * number(values), number(payload_bytes), 1);
  summary.wire_ratio = dense_bytes == 0 ? 1 : ratio(number(dense_bytes), number(sent_bytes), 1);
  summary.lost_debt = std::sqrt(lost_debt_squared);
  summary.achieved_over_target = ratio(number(kept), number(target), 0);
}

std::string RunTotals::to_json() const { return nlohmann::json(*this).dump(); }

Result<RunTotals> RunTotals::from_json(const std::string& text) {
  try {
    nlohmann::json json = nlohmann::json::parse(text);
    for (const char* later : {"inside_bytes", "between_bytes", "delivered_norm",
                              "lost_debt_squared", "peak_sent_bytes", "samples"})
      if (json.is_object() && !json.contains(later)) json[later] = 0;  // older checkpoints
    for (auto& value : json)  // JSON has no NaN, which the loss of a run that diverged may be
      if (value.is_null()) value = std::numeric_limits<double>::quiet_NaN();
    return json.get<RunTotals>();
  } catch (const nlohmann::json::exception& error) {
    return Status::fail(ErrorCode::kCorrupt, error.what());
  }
}

}  // namespace thinwire
