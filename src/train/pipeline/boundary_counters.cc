// Counts what crossed boundaries as a report counts streams.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/boundary_counters.h"

#include <functional>
#include <numeric>
#include <utility>

namespace thinwire {
namespace {

StreamCounters counters_of(const PipelineReport::Direction& from) {
  StreamCounters counters;
  counters.values = counters.kept = from.values;
  counters.payload_bytes = from.payload_bytes;
  counters.frame_bytes = from.message_bytes;
  return counters;
}

}  // namespace

uint64_t count_of(const std::vector<uint64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

void report_boundaries(const PipelineReport& from, bool with_exchange, StepReport& report) {
  std::vector<StreamCounters> streams;
  for (const PipelineReport::Boundary& boundary : from.boundaries)
    for (const PipelineReport::Direction* way : {&boundary.forward, &boundary.backward})
      streams.push_back(counters_of(*way));
  if (with_exchange) streams.insert(streams.end(), report.streams.begin(), report.streams.end());
  report.streams = std::move(streams);
}

}  // namespace thinwire
