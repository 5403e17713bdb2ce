// average: every tau steps all workers become their mean [local SGD: Stich, ICLR 2019; post-local
// SGD: Lin et al., ICLR 2020].
//
//   x_i <- mean of all x
//
// With a lossy codec a is what all had after the last round, and the exchange's memory keeps what
// was not sent of a difference, since nothing of x_i is left after the round:
//   a <- a + mean of decode(encode(x_i - a + memory)),   x_i <- a
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sync/sync_rules.h"

namespace thinwire {
namespace {

class Average final : public SyncRule {
 public:
  Average(const SyncSetup& setup, uint64_t period)
      : SyncRule(setup, "average", anchor_of(setup)),
        period_(period),
        anchor_(memory().vector("anchor")) {}

 private:
  static std::vector<SyncMemory::Vector> anchor_of(const SyncSetup& setup) {
    const bool none = is_lossless(setup.options.codec);
    return {{"anchor", none ? AlignedVector<float>() : copy_of(setup.start)}};
  }

  std::string shared_memory() const override { return std::to_string(memory().checksum()); }

  void join() override {
    mean_ = std::make_unique<ReplicaMean>(channel(), store(), tensors(), options(), "residual",
                                          memory().rounds);
  }

  std::optional<RoundReport> step(std::span<float> parameters, double /*loss*/) override {
    if (channel().size() == 1 || !every(period_)) return std::nullopt;
    RoundReport report =
        round_report(mean_->form(parameters, anchor_), memory().rounds, memory().steps);
    if (!report.skipped) {
      const std::span<const float> mean = mean_->mean();
      std::copy(mean.begin(), mean.end(), parameters.begin());
      if (!anchor_.empty()) std::copy(mean.begin(), mean.end(), anchor_.begin());
    }
    end_round(report);
    return report;
  }

  const uint64_t period_;
  AlignedVector<float>& anchor_;  // empty: parameters travel as they are
  std::unique_ptr<ReplicaMean> mean_;
};

}  // namespace

const SyncRuleEntry& average_entry() {
  static const SyncRuleEntry entry{.info = {.name = "average",
                                            .summary = "all workers become their mean",
                                            .paper = "Stich, ICLR 2019",
                                            .options = {period_row("64")}},
                                   .make =
                                       [](const Options& options, const SyncSetup& setup) {
                                         return std::make_unique<Average>(
                                             setup, static_cast<uint64_t>(options.integer("tau")));
                                       },
                                   .memory = residual_memory};
  return entry;
}

}  // namespace thinwire
