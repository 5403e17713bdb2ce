// predict_step: bytes of every rank, and the time of the one that sends most.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "plan/levels_layout.h"
#include "plan/played_steps.h"
#include "thinwire/step_plan.h"

namespace thinwire {
namespace {

// What would shorten the step most if it cost nothing; the arithmetic, if that is all but 5 % of it.
StepLimit limit_of(const PlayedSteps& steps, const PlanRequest& request, double seconds,
                   double compute) {
  if (seconds <= 1.05 * compute) return StepLimit::kComputation;
  PlanRequest wide = request, near = request, free_inside = request;
  wide.link.bits_per_second = 0;
  near.link.latency_seconds = 0;
  free_inside.inside = {};
  const std::array saved = {
      std::pair(seconds - steps.play(wide).seconds, StepLimit::kBandwidth),
      std::pair(seconds - steps.play(near).seconds, StepLimit::kLatency),
      std::pair(seconds - steps.play(request, true).seconds, StepLimit::kCoding),
      std::pair(seconds - steps.play(free_inside).seconds, StepLimit::kInside)};
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
  return Status::ok();
}

Status check_machines(const ExchangeOptions& options, const PlanRequest& request) {
  const int size = request.per_machine;
  if (size < 1 || request.ranks % size != 0)
    return Status::fail(ErrorCode::kBadOption, "plan: machines of " + std::to_string(size) +
                                                   " ranks do not make up " +
                                                   std::to_string(request.ranks) + " ranks");
  if (options.inside != 1 && size != 1 && options.inside != size)
    return Status::fail(ErrorCode::kUnsupported,
                        "plan: groups of inside = " + std::to_string(options.inside) +
                            " ranks are not machines of " + std::to_string(size) +
                            "; choose inside = 1 or " + std::to_string(size));
  return Status::ok();
}

using Laid = Result<std::unique_ptr<LevelsLayout>>;
Laid lay_out(const StepTimeline& timeline, const ExchangeOptions& options,
             const PlanRequest& request, CostTable& costs) {
  if (Status status = check_timeline(timeline); !status) return status;
  Laid laid = LevelsLayout::make(timeline.tensors, options, request.ranks, costs);
  if (!laid) return laid;
  if (Status status = check_machines(options, request); !status) return status;
  return laid;
}

}  // namespace

std::string_view to_string(StepLimit limit) noexcept {
  constexpr std::array<std::string_view, 5> kNames = {"computation", "bandwidth", "latency",
                                                      "coding", "inside"};
  return kNames[static_cast<size_t>(limit)];
}

double StepPrediction::busiest_bytes() const noexcept {
  return sent_bytes.empty() ? 0 : *std::max_element(sent_bytes.begin(), sent_bytes.end());
}

std::optional<double> StepPrediction::busiest_between() const noexcept {
  if (inside_bytes.size() != sent_bytes.size()) return std::nullopt;
  double most = 0;
  for (size_t rank = 0; rank < sent_bytes.size(); ++rank)
    most = std::max(most, sent_bytes[rank] - inside_bytes[rank]);
  return most;
}

Result<StepPrediction> predict_step(const StepTimeline& timeline, const ExchangeOptions& options,
                                    const PlanRequest& request, CostTable& costs) {
  Laid laid = lay_out(timeline, options, request, costs);
  if (!laid) return laid.status();
  const LevelsLayout& layout = *laid.value();
  const PlayedSteps steps(layout, timeline);
  const Played played = steps.play(request);
  const bool knows_machines = layout.places() > 1 || request.per_machine == 1;
  StepPrediction prediction{
      .method = layout.method_names(),
      .seconds = played.seconds,
      .longest_seconds = played.seconds,
      .compute_seconds = timeline.compute_seconds,
      .encode_seconds = played.encode_seconds,
      .decode_seconds = played.decode_seconds,
      .wire_seconds = played.wire_seconds,
      .limit = limit_of(steps, request, played.seconds, timeline.compute_seconds),
      .sent_bytes = steps.sent(),
      .inside_bytes = knows_machines ? steps.inside() : std::vector<double>(),
      .bytes_exact = steps.exact(),
      .memory_bytes = layout.memory_bytes()};
  return prediction;
}

double break_even_rate(const std::function<bool(double bits_per_second)>& pays) {
  double slow = 1e3, fast = 1e12;
  if (!pays(slow)) return 0;
  if (pays(fast)) return std::numeric_limits<double>::infinity();
  while (fast > 1.01 * slow) {
    const double middle = std::sqrt(slow * fast);
    (pays(middle) ? slow : fast) = middle;
  }
  return slow;
}

Result<double> break_even_rate(const StepTimeline& timeline, const ExchangeOptions& compressed,
                               const ExchangeOptions& dense, const PlanRequest& request,
                               CostTable& costs, double speed_up) {
  Laid laid = lay_out(timeline, compressed, request, costs);
  if (!laid) return laid.status();
  Laid laid_dense = lay_out(timeline, dense, request, costs);
  if (!laid_dense) return laid_dense.status();
  const PlayedSteps steps(*laid.value(), timeline);
  const PlayedSteps dense_steps(*laid_dense.value(), timeline);
  const auto pays = [&](double rate) {
    PlanRequest at = request;
    at.link.bits_per_second = rate;
    return speed_up * steps.play(at).seconds < dense_steps.play(at).seconds;
  };
  return break_even_rate(pays);
}

}  // namespace thinwire
