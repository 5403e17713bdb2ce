// limit_of() and what every prediction asks of its request.
// SPDX-License-Identifier: Apache-2.0
#include "plan/step_limit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "core/number_text.h"

namespace thinwire {
namespace {

constexpr double kRounding = 1e-9;  // of sums of times

bool is_time(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

}  // namespace

StepLimit limit_of(const PlaySeconds& play, const PlanRequest& request, double seconds,
                   double compute_seconds) {
  if (seconds <= 1.05 * compute_seconds) return StepLimit::kComputation;
  PlanRequest wide = request, near = request, free_inside = request;
  wide.link.bits_per_second = 0;
  near.link.latency_seconds = 0;
  free_inside.inside = {};
  const std::array saved = {std::pair(seconds - play(wide, false), StepLimit::kBandwidth),
                            std::pair(seconds - play(near, false), StepLimit::kLatency),
                            std::pair(seconds - play(request, true), StepLimit::kCoding),
                            std::pair(seconds - play(free_inside, false), StepLimit::kInside)};
  return std::max_element(saved.begin(), saved.end(),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

Status check_timeline(const StepTimeline& timeline) {
  if (timeline.tensors.empty())
    return Status::fail(ErrorCode::kBadOption, "plan: the model has no tensors");
  if (timeline.ready_seconds.size() != timeline.tensors.size())
    return Status::fail(ErrorCode::kBadOption,
                        "plan: the timeline has " + std::to_string(timeline.ready_seconds.size()) +
                            " times for " + std::to_string(timeline.tensors.size()) + " tensors");
  for (const double seconds : {timeline.backward_seconds, timeline.compute_seconds})
    if (!is_time(seconds))
      return Status::fail(ErrorCode::kBadOption,
                          "plan: the backward pass ends after " +
                              shortest(timeline.backward_seconds) + " s and the step after " +
                              shortest(timeline.compute_seconds) + " s; both are from 0");
  for (size_t i = 0; i < timeline.tensors.size(); ++i) {
    const double ready = timeline.ready_seconds[i];
    if (!is_time(ready) || ready > (1 + kRounding) * timeline.backward_seconds)
      return Status::fail(ErrorCode::kBadOption,
                          "plan: the gradient of tensor '" + timeline.tensors[i].name +
                              "' is complete after " + shortest(ready) +
                              " s; that is from 0 to the end of the backward pass, " +
                              shortest(timeline.backward_seconds) + " s");
  }
  return Status::ok();
}

Status check_machines(const PlanRequest& request) {
  const int size = request.per_machine;
  if (size < 1 || request.ranks % size != 0)
    return Status::fail(ErrorCode::kBadOption, "plan: machines of " + std::to_string(size) +
                                                   " ranks do not make up " +
                                                   std::to_string(request.ranks) + " ranks");
  return Status::ok();
}

}  // namespace thinwire
