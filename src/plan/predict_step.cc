// predict_step: bytes of every rank, and the time of the one that sends most.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "plan/levels_layout.h"
#include "plan/played_steps.h"
#include "plan/step_limit.h"
#include "thinwire/step_plan.h"

namespace thinwire {
namespace {

Status check_levels(const ExchangeOptions& options, const PlanRequest& request) {
  if (Status status = check_machines(request); !status) return status;
  const int size = request.per_machine;
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
  if (Status status = check_levels(options, request); !status) return status;
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
      .limit = limit_of([&](const PlanRequest& other,
                            bool free_coding) { return steps.play(other, free_coding).seconds; },
                        request, played.seconds, timeline.compute_seconds),
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
