// parle: replicas that are pulled to each other, each found by an inner loop that is pulled to it
// [Chaudhari et al., arXiv 1707.00424].
//
// Replica x, the inner loop's place y (what the worker trains), its running average z:
//   each step:         y <- y - lr (gradient at y + gamma (y - x)),
//                      z <- average z + (1 - average) y
//   every tau steps:   g = (x - z) + rho (x - mean of all x),   x by an outer Nesterov step on g,
//                      y <- x,   z <- x
// The worker's optimiser takes the first: adjust_gradient adds the pull. Scoping: with B `batches`
// an epoch, gamma and rho grow by the factor 1 + 1/(2 B) with each outer step, up to 1 and 10.
//
// Limits: one worker, tau = 1, gamma = average = 0 is SGD; one worker is Entropy-SGD; tau = 1,
// gamma = average = 0 is Elastic-SGD, x_i <- x_i - lr g_i - rho (x_i - mean). All at an outer rate
// of 1 without momentum.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "kernel/memory_passes.h"
#include "sync/outer_sgd.h"

namespace thinwire {
namespace {

struct ParleRule {
  uint64_t period = 1;
  double gamma = 0;
  double rho = 0;
  float average = 0;
  double growth = 0;  // of gamma and rho, with each outer step
  OuterStep outer;
};

class Parle final : public SyncRule {
 public:
  Parle(const SyncSetup& setup, const ParleRule& rule)
      : SyncRule(
            setup, "parle",
            {{"replica", copy_of(setup.start)},
             {"average", copy_of(setup.start)},
             {"velocity", AlignedVector<float>(rule.outer.momentum != 0 ? setup.start.size() : 0)},
             {"origin",
              is_lossless(setup.options.codec) ? AlignedVector<float>() : copy_of(setup.start)}}),
        rule_(rule),
        replica_(memory().vector("replica")),
        average_(memory().vector("average")),
        velocity_(memory().vector("velocity")),
        origin_(memory().vector("origin")) {}

  bool adjusts_gradient() const noexcept override { return true; }
  void adjust_gradient(std::span<const float> parameters, std::span<float> gradient) override {
    THINWIRE_CHECK(parameters.size() == count() && gradient.size() == count(),
                   "parle: wrong number of values");
    const float gamma = scoped(rule_.gamma, 1, memory().steps / rule_.period);
    for (size_t i = 0; i < gradient.size(); ++i)
      gradient[i] += gamma * (parameters[i] - replica_[i]);
  }

 private:
  float scoped(double start, double limit, uint64_t outer_steps) const {
    const double grown = start * std::pow(1 + rule_.growth, static_cast<double>(outer_steps));
    return static_cast<float>(std::min(grown, std::max(start, limit)));
  }

  void join() override {
    if (channel().size() > 1)
      mean_ = std::make_unique<ReplicaMean>(channel(), store(), tensors(), options(), "ef21",
                                            memory().rounds);
  }

  std::optional<RoundReport> step(std::span<float> parameters, double /*loss*/) override {
    kernel::weighted_sum(rule_.average, average_, 1 - rule_.average, parameters, average_);
    if (!every(rule_.period)) return std::nullopt;
    if (mean_ == nullptr) {
      outer_step(replica_, 0, parameters);
      return std::nullopt;
    }
    const bool fit = measure(average_).finite;  // a replica follows its inner loop
    RoundReport report =
        round_report(mean_->form(replica_, origin_, fit), memory().rounds, memory().steps);
    if (report.skipped && report.fault.code == ErrorCode::kOk) {
      report.fault.code = ErrorCode::kNonFinite;
      report.fault.stream = "average";
    }
    if (!report.skipped) {
      const float rho = scoped(rule_.rho, 10, memory().steps / rule_.period - 1);
      outer_step(mean_->mean(), rho, parameters);
    }
    end_round(report);
    return report;
  }

  void outer_step(std::span<const float> mean, float rho, std::span<float> parameters) {
    rule_.outer.apply(replica_, velocity_, [&](size_t i) {
      const float x = replica_[i];
      return (x - average_[i]) + rho * (x - mean[i]);
    });
    std::copy(replica_.begin(), replica_.end(), parameters.begin());
    std::copy(replica_.begin(), replica_.end(), average_.begin());
  }

  const ParleRule rule_;
  AlignedVector<float>& replica_;
  AlignedVector<float>& average_;
  AlignedVector<float>& velocity_;  // empty without momentum
  AlignedVector<float>& origin_;    // empty: replicas travel as they are
  std::unique_ptr<ReplicaMean> mean_;
};
OptionInfo number_row(std::string_view name, std::string_view fallback, double max,
                      std::string_view help) {
  return {.name = name,
          .type = OptionType::kNumber,
          .fallback = fallback,
          .min = 0,
          .max = max,
          .help = help};
}

std::unique_ptr<SyncRule> make_parle(const Options& options, const SyncSetup& setup) {
  const auto batches = static_cast<double>(options.integer("batches"));
  return std::make_unique<Parle>(
      setup, ParleRule{.period = static_cast<uint64_t>(options.integer("tau")),
                       .gamma = options.number("gamma"),
                       .rho = options.number("rho"),
                       .average = static_cast<float>(options.number("average")),
                       .growth = batches > 0 ? 0.5 / batches : 0,
                       .outer = {.rate = static_cast<float>(options.number("rate")),
                                 .momentum = static_cast<float>(options.number("momentum"))}});
}

}  // namespace

const SyncRuleEntry& parle_entry() {
  static const SyncRuleEntry entry{
      .info = {.name = "parle",
               .summary = "replicas that pull each other, each behind an inner loop",
               .paper = "Chaudhari et al., 2017",
               .options = {period_row("25"),
                           number_row("gamma", "0.01", 1, "pull of the inner loop to its replica"),
                           number_row("rho", "0.01", 10, "pull of replicas to their mean"),
                           number_row("average", "0.75", 0.9999, "weight of the past in z"),
                           {.name = "batches",
                            .type = OptionType::kInteger,
                            .fallback = "0",
                            .min = 0,
                            .max = 0x1p53,
                            .unit = "steps",
                            .help = "of an epoch: gamma and rho grow with them; 0: they stay"},
                           number_row("rate", "1", 10, "learning rate of the outer step"),
                           number_row("momentum", "0", 0.9999, "of the outer step, Nesterov's")}},
      .make = make_parle,
      .memory = ef21_memory};
  return entry;
}

}  // namespace thinwire
