// momentum: sends a moving average of gradients, for methods that keep no remainder [Signum:
// Bernstein et al., ICML 2018, algorithm 2].
//
//   m' = beta m + (1 - beta) g,   m = 0 at first
//
// What is sent is m'; what a message could not carry of it is lost, and the mean's owners keep
// nothing either. Two buffers that commit swaps, so that rollback has nothing to undo.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "feedback/feedback_rules.h"
#include "feedback/one_vector_memory.h"

namespace thinwire {
namespace {

class MovingAverage final : public OneVectorMemory {
 public:
  MovingAverage(double beta, size_t count, SharedPlace place)
      : OneVectorMemory("momentum", "momentum", count, std::move(place)),
        beta_(static_cast<float>(beta)),
        fresh_(static_cast<float>(1 - beta)) {}

  std::span<float> rest() noexcept override { return {}; }

 private:
  Signal form(std::span<const float> gradient, size_t begin) override {
    const auto now = kept_.now.subspan(begin, gradient.size());
    const auto next = kept_.next.subspan(begin, gradient.size());
    const Moments moments = place().weighted_sum_with_moments(beta_, now, fresh_, gradient, next);
    return {.values = next, .fresh = gradient, .moments = moments};
  }

  const float beta_;
  const float fresh_;  // 1 - beta
};

std::unique_ptr<Feedback> make(const Options& options, const StreamSpec& stream,
                               SharedPlace place) {
  return std::make_unique<MovingAverage>(options.number("beta"), stream.count(), std::move(place));
}

}  // namespace

const FeedbackEntry& momentum_entry() {
  static const FeedbackEntry entry{
      .name = "momentum",
      .summary = "sends a moving average of gradients and keeps no remainder",
      .paper = "Signum, ICML 2018, arXiv:1802.04434",
      .options = {{.name = "beta",
                   .type = OptionType::kNumber,
                   .fallback = "0.9",
                   .min = 0,
                   .max = 0.999999,
                   .help = "share of the average that stays in each step; 0: the gradient"}},
      .make = make_here(make),
      .on_device = make_on_device(make),
      .momentum = [](const Options& options) { return options.number("beta"); }};
  return entry;
}

}  // namespace thinwire
