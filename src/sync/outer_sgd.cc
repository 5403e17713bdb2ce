// OuterSgd: anchor, mean and outer step; the workers continue from the new anchor.
// SPDX-License-Identifier: Apache-2.0
#include "sync/outer_sgd.h"

#include <algorithm>
#include <utility>

namespace thinwire {

MomentumPlan plan_momentum(const SynchroniserOptions& given, const OuterStep& outer,
                           const std::string& feedback) {
  ExchangeOptions options;
  options.codec = given.codec;
  options.feedback = given.feedback;
  options.method = given.exchange;
  return place_momentum(given.momentum, {.momentum = outer.momentum, .nesterov = true}, options,
                        is_lossless(options.codec) ? "none" : feedback)
      .value();
}

OuterStep step_on_mean(OuterStep outer, const MomentumPlan& plan) {
  if (plan.in_memory) outer.momentum = 0;
  return outer;
}

std::string outer_memory(const SynchroniserOptions& options, const OuterStep& outer,
                         const std::string& usual) {
  const MomentumPlan plan = plan_momentum(options, outer, usual);
  return plan.in_memory ? plan.feedback : usual;
}

OuterSgd::OuterSgd(const SyncSetup& setup, const std::string& name, uint64_t period,
                   OuterStep outer, std::string feedback)
    : OuterSgd(setup, name, period, outer, feedback,
               plan_momentum(setup.options, outer, feedback)) {}

OuterSgd::OuterSgd(const SyncSetup& setup, const std::string& name, uint64_t period,
                   OuterStep outer, std::string feedback, MomentumPlan momentum)
    : SyncRule(setup, name,
               {{"anchor", copy_of(setup.start)},
                {"velocity", AlignedVector<float>(step_on_mean(outer, momentum).momentum != 0
                                                      ? setup.start.size()
                                                      : 0)}}),
      period_(period),
      feedback_(std::move(feedback)),
      momentum_(std::move(momentum)),
      outer_(step_on_mean(outer, momentum_)),
      lossless_(is_lossless(setup.options.codec) && !momentum_.in_memory),
      anchor_(memory().vector("anchor")),
      velocity_(memory().vector("velocity")) {}

std::string OuterSgd::shared_memory() const { return std::to_string(memory().checksum()); }

void OuterSgd::join() {
  SynchroniserOptions settled = options();
  if (momentum_.in_memory) settled.feedback = momentum_.feedback;
  mean_ = std::make_unique<ReplicaMean>(channel(), store(), tensors(), settled, feedback_,
                                        memory().rounds);
}

std::optional<RoundReport> OuterSgd::step(std::span<float> parameters, double /*loss*/) {
  if (!every(period_)) return std::nullopt;
  const std::span<const float> origin = lossless_ ? std::span<const float>() : anchor_;
  RoundReport report =
      round_report(mean_->form(parameters, origin), memory().rounds, memory().steps);
  if (!report.skipped) {
    const std::span<const float> mean = mean_->mean();
    outer_.apply(anchor_, velocity_, [&](size_t i) { return anchor_[i] - mean[i]; });
    std::copy(anchor_.begin(), anchor_.end(), parameters.begin());
  }
  end_round(report);
  return report;
}

bool OuterSgd::own_centre(std::span<float> out) {
  std::copy(anchor_.begin(), anchor_.end(), out.begin());
  return true;
}

}  // namespace thinwire
