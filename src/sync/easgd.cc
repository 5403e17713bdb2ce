// easgd: every tau steps workers and a centre pull each other [Zhang, Choromanska, LeCun, NIPS
// 2015].
//
//   centre=variable:  c <- c + rate (mean of all x - c),
//                     x_i <- x_i - (rate/n) (x_i - c), both from the old c and x: the paper's
//                     synchronous form with alpha = rate/n, beta = rate. The sum of all x_i and c
//                     stays what it is.
//   centre=mean:      x_i <- x_i - rate (x_i - mean of all x): no memory, the mean stays where it
//                     is
//
// The centre is computed by every rank from the same mean: the same bits, and no server. A lossy
// codec carries the change of an estimate of x_i that all follow (ef21), with the start as its
// origin: the workers keep what was not sent, so it is in the next difference by itself.
//
// One worker has nobody to be pulled to: it is SGD.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernel/memory_passes.h"
#include "sync/sync_rules.h"

namespace thinwire {
namespace {

struct EasgdRule {
  uint64_t period = 1;
  double rate = 0;  // beta
  bool has_centre = false;
};

class Easgd final : public SyncRule {
 public:
  Easgd(const SyncSetup& setup, const EasgdRule& rule)
      : SyncRule(setup, "easgd", vectors_of(setup, rule)),
        rule_(rule),
        origin_(memory().vector("origin")),
        centre_(memory().vector("centre")) {}

 private:
  static std::vector<SyncMemory::Vector> vectors_of(const SyncSetup& setup, const EasgdRule& rule) {
    const AlignedVector<float> start = copy_of(setup.start), none;
    return {{"origin", is_lossless(setup.options.codec) ? none : start},
            {"centre", rule.has_centre ? start : none}};
  }

  std::string shared_memory() const override { return std::to_string(memory().checksum()); }

  void join() override {
    mean_ = std::make_unique<ReplicaMean>(channel(), store(), tensors(), options(), "ef21",
                                          memory().rounds);
  }

  std::optional<RoundReport> step(std::span<float> parameters, double /*loss*/) override {
    if (channel().size() == 1 || !every(rule_.period)) return std::nullopt;
    RoundReport report =
        round_report(mean_->form(parameters, origin_), memory().rounds, memory().steps);
    if (!report.skipped) pull(parameters);
    end_round(report);
    return report;
  }

  void pull(std::span<float> parameters) {
    const auto beta = static_cast<float>(rule_.rate);
    const auto alpha = rule_.has_centre ? static_cast<float>(rule_.rate / channel().size()) : beta;
    const std::span<const float> to =
        rule_.has_centre ? std::span<const float>(centre_) : mean_->mean();
    kernel::weighted_sum(1 - alpha, parameters, alpha, to, parameters);
    if (rule_.has_centre) kernel::weighted_sum(1 - beta, centre_, beta, mean_->mean(), centre_);
  }

  bool own_centre(std::span<float> out) override {
    if (!rule_.has_centre || channel().size() == 1) return false;
    std::copy(centre_.begin(), centre_.end(), out.begin());
    return true;
  }

  const EasgdRule rule_;
  AlignedVector<float>& origin_;  // empty: parameters travel as they are
  AlignedVector<float>& centre_;
  std::unique_ptr<ReplicaMean> mean_;
};

}  // namespace

const SyncRuleEntry& easgd_entry() {
  static const SyncRuleEntry entry{
      .info = {.name = "easgd",
               .summary = "workers and a centre pull each other",
               .paper = "Zhang et al., NIPS 2015",
               .options =
                   {period_row("64"),
                    {.name = "rate",
                     .type = OptionType::kNumber,
                     .fallback = "0.43",
                     .min = 0,
                     .max = 1,
                     .unit = "fraction",
                     .help =
                         "of the centre, n times a worker's; of a worker where there is no centre"},
                    {.name = "centre",
                     .type = OptionType::kChoice,
                     .fallback = "variable",
                     .choices = {"variable", "mean"},
                     .help = "what workers are pulled to"}}},
      .make =
          [](const Options& options, const SyncSetup& setup) {
            return std::make_unique<Easgd>(
                setup, EasgdRule{.period = static_cast<uint64_t>(options.integer("tau")),
                                 .rate = options.number("rate"),
                                 .has_centre = options.text("centre") == "variable"});
          },
      .memory = ef21_memory};
  return entry;
}

}  // namespace thinwire
