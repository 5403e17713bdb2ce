// momentum: sends a moving average of gradients, for methods that keep no remainder [Signum: Bernstein
// et al., ICML 2018, algorithm 2].
//
//   m' = beta m + (1 - beta) g,   m = 0 at first
//
// What is sent is m'; what a message could not carry of it is lost, and the mean's owners keep nothing
// either. Two buffers that commit swaps, so that rollback has nothing to undo.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/feedback_rules.h"
#include "feedback/kept_vector.h"
#include "feedback/step_guard.h"
#include "kernel/memory_passes.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr const char* kArray = "momentum";

class Momentum final : public Feedback {
 public:
  Momentum(double beta, size_t count)
      : beta_(static_cast<float>(beta)),
        fresh_(static_cast<float>(1 - beta)),
        momentum_(count),
        guard_("momentum", count) {}

  Signal prepare(std::span<const float> gradient, const Call& /*call*/) override {
    guard_.prepare(gradient.size());
    return form(gradient, 0);
  }
  std::optional<Signal> prepare_part(std::span<const float> gradient, size_t begin,
                                     const Call& /*call*/) override {
    guard_.prepare_part(begin, gradient.size());
    return form(gradient, begin);
  }
  std::span<float> rest() noexcept override { return {}; }

  void sent(std::span<const float> gradient, size_t begin, size_t count) override {
    guard_.sent(gradient.size(), begin, count);
  }
  void commit() override {
    guard_.commit_all_sent();
    momentum_.commit();
  }
  void rollback() override { guard_.rollback(); }

  StateArrays save() const override { return {momentum_.write(kArray)}; }
  Status load(const StateArrays& arrays) override {
    if (Status status = momentum_.read(arrays, kArray); !status) return status;
    momentum_.commit();
    guard_.rollback();
    return Status::ok();
  }

 private:
  Signal form(std::span<const float> gradient, size_t begin) {
    const auto now = std::span(momentum_.now).subspan(begin, gradient.size());
    const auto next = std::span(momentum_.next).subspan(begin, gradient.size());
    kernel::weighted_sum(beta_, now, fresh_, gradient, next);
    return {.values = next, .fresh = gradient, .moments = kernel::moments(next)};
  }

  const float beta_;
  const float fresh_;  // 1 - beta
  KeptVector momentum_;
  StepGuard guard_;
};

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
      .make = [](const Options& options, const StreamSpec& stream) {
        return std::make_unique<Momentum>(options.number("beta"), stream.count());
      }};
  return entry;
}

}  // namespace thinwire
