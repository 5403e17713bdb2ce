// SimulatedRun: ranks with codec auto whose clocks are simulated: a step takes what predict_step
// says of a link.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exchange/testing/exchange_testing.h"
#include "plan/auto_choice.h"
#include "thinwire/auto_codec.h"

namespace thinwire::testing {

// Two tensors of megabytes, so that a step's bytes matter, and small ones. Encoding costs a
// nanosecond per value.
inline std::vector<TensorSpec> simulated_model() {
  return {{"first.weight", {100, 100}, TensorKind::kLinear},
          {"first.bias", {100}, TensorKind::kBias},
          {"last.weight", {10, 100}, TensorKind::kLinear}};
}

inline CostTable simulated_costs() {
  CostTable costs;
  for (const std::string& text : auto_candidates(AllowedLoss::kAny)) {
    const bool lossless = text == "fp32";
    const double sparse = text.find("0.01") != std::string::npos ? 0.05 : 4;
    ExchangeOptions options =
        decided_options({.codec = "auto"}, {.step = 0, .codec = text, .why = {}});
    for (const bool norms : {true, false}) {
      options.norms = norms;
      costs.set(options, {.encode_seconds_per_value = lossless ? 0 : 1e-9,
                          .decode_seconds_per_value = 1e-10,
                          .bytes_per_value = sparse});
    }
  }
  return costs;
}

// What a simulated step depends on.
struct World {
  std::function<LinkSpec(uint64_t step)> link;
  std::function<double(uint64_t step, int rank)> compute;
  // What a probe finds of it.
  std::function<ProbedLink(const LinkSpec& real, uint64_t step)> probed = [](const LinkSpec& real,
                                                                             uint64_t) {
    return ProbedLink{real, /*at_least=*/false};
  };
  // How many times the predicted seconds a step with a decision takes.
  std::function<double(const AutoDecision&, uint64_t step)> wrong = [](const AutoDecision&,
                                                                       uint64_t) { return 1.0; };
  // How many times as long the arithmetic takes beside a decision's codecs.
  std::function<double(const AutoDecision&)> slows = [](const AutoDecision&) { return 1.0; };
};

class SimulatedRun {
 public:
  SimulatedRun(Group& group, const World& world, const ExchangeOptions& options,
               std::shared_ptr<Store> store = std::make_shared<Store>())
      : group_(group),
        world_(world),
        base_(options),
        store_(std::move(store)),
        step_(options.first_step),
        exchange_(make_auto_exchange(
            group, *store_, model_, options,
            {.clock = [this] { return now_; },
             .probe =
                 [this](Group&, double seconds, const std::optional<LinkSpec>& /*known*/) {
                   ++probes;
                   probe_seconds = seconds;
                   return world_.probed(world_.link(step_), step_);
                 },
             .costs = simulated_costs()})) {}

  StepReport step() {
    play([&](size_t i) {
      exchange_->start(i, {.data = values[i].data(), .count = values[i].size()});
    });
    return exchange_->finish();
  }

  // The group's own all-reduce sums, wherever the exchange leaves it to that.
  StepReport step_outside() {
    Bypass* const bypass = exchange_->bypass();
    if (bypass == nullptr || !bypass->may_bypass()) return step();
    play([&](size_t i) { bypass->start_outside(i, values[i]); });
    for (Values& one : values) group_.library_all_reduce(one);
    return bypass->finish_outside();
  }

  void steps(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) step();
  }

  // Seconds of the next step with a decision, if the prediction is right.
  double usual(const AutoDecision& decision) {
    double longest = 0;
    for (int rank = 0; rank < group_.size(); ++rank)
      longest = std::max(longest, world_.slows(decision) * world_.compute(step_, rank));
    StepTimeline timeline{.tensors = model_,
                          .ready_seconds = {},
                          .backward_seconds = longest,
                          .compute_seconds = longest};
    for (size_t i = 0; i < model_.size(); ++i)
      timeline.ready_seconds.push_back(longest * static_cast<double>(model_.size() - i) /
                                       static_cast<double>(model_.size()));
    const PlanRequest request{.ranks = group_.size(), .link = world_.link(step_)};
    return predict_step(timeline, decided_options(base_, decision), request, costs_)
        .value()
        .seconds;
  }

  const AutoDecision& decision() const { return exchange_->decisions().back(); }
  Exchange& exchange() { return *exchange_; }
  Store& store() { return *store_; }
  const std::vector<TensorSpec>& model() const { return model_; }

  Tensors given, values;  // gradients; then means
  float poison = 0;       // is added to the first value of each step
  int probes = 0;
  double probe_seconds = 0;  // that the latest was given

 private:
  template <typename Start>
  void play(const Start& start) {
    given = gradients(model_, group_.rank(), step_);
    values = given;
    values[0][0] += poison;
    const double begin = now_;
    const double own = world_.slows(decision()) * world_.compute(step_, group_.rank());
    for (size_t i = model_.size(); i-- > 0;) {
      now_ += own / static_cast<double>(model_.size());
      start(i);
    }
    now_ = begin + world_.wrong(decision(), step_) * usual(decision());
    ++step_;
  }

  Group& group_;
  const World& world_;
  const ExchangeOptions base_;
  const std::vector<TensorSpec> model_ = simulated_model();
  std::shared_ptr<Store> store_;
  CostTable costs_ = simulated_costs();
  double now_ = 0;
  uint64_t step_ = 0;
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace thinwire::testing
