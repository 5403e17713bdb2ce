// efmixed: half of what may be sent goes to the gradient, half to what was left before [Rudakov et
// al., arXiv:2401.07788; the rule is only described there, not defined].
//
//   k = density x count, rounded, at least 1
//   sent: the k - k/2 largest |g| and the k/2 largest |e|; where both are, g + e
//   e <- what was not sent of either
//
// In plain error feedback a residual that has grown large displaces the gradient; here both have
// their share. The selection is the memory's: a sparsifier that gets it at the same density finds
// at most k values that are not zero, and sends them all. What any codec leaves of them returns to
// e, so that sent + e is g + e_old, each value rounded twice at most.
//
// Ties go to the lowest position, zeros are never selected. Three buffers of 4 bytes per value, and
// about 12 bytes for each of the k. Two exact selections, as of topk: of large vectors little more
// than one read each.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/aligned.h"
#include "feedback/feedback_rules.h"
#include "feedback/kept_vector.h"
#include "feedback/step_guard.h"
#include "kernel/memory_passes.h"
#include "kernel/top_selector.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr const char* kArray = "residual";

class EfMixed final : public Feedback {
 public:
  EfMixed(size_t kept, size_t count)
      : largest_fresh_(count, kept - kept / 2),
        largest_old_(count, kept / 2),
        residual_(count),
        values_(count),
        guard_("efmixed", count) {}

  // `next` becomes what is not selected.
  Signal prepare(std::span<const float> gradient, const Call& /*call*/) override {
    guard_.prepare(gradient.size());
    const std::span<float> left = residual_.next;
    const std::span<const float> old = residual_.now;
    const Moments of_all = kernel::add_with_moments(gradient, old, left);
    std::fill(values_.begin(), values_.end(), 0.0f);
    if (!of_all.finite) return {.values = left, .fresh = {}, .moments = of_all};

    for (const uint32_t i : largest_fresh_.select(gradient)) {
      values_[i] = gradient[i];
      left[i] = old[i];
    }
    for (const uint32_t i : largest_old_.select(old)) {
      left[i] = values_[i] != 0 ? 0.0f : gradient[i];  // zeros were not selected
      values_[i] += old[i];
    }
    return {.values = values_, .fresh = {}, .moments = kernel::moments(values_)};
  }
  std::span<float> rest() noexcept override { return values_; }

  void sent(std::span<const float> gradient, size_t begin, size_t count) override {
    guard_.sent(gradient.size(), begin, count);
    const auto left = std::span(residual_.next).subspan(begin, count);
    kernel::weighted_sum(1, left, 1, std::span(values_).subspan(begin, count), left);
  }

  void commit() override {
    guard_.commit_all_sent();
    residual_.commit();
  }
  void rollback() override { guard_.rollback(); }

  size_t held_bytes() const override {
    return residual_.held_bytes() + values_.size() * sizeof(float) + largest_fresh_.held_bytes() +
           largest_old_.held_bytes();
  }
  StateArrays save() const override { return {residual_.write(kArray)}; }
  Status load(const StateArrays& arrays) override {
    if (Status status = residual_.read(arrays, kArray); !status) return status;
    residual_.commit();
    guard_.rollback();
    return Status::ok();
  }

 private:
  kernel::TopSelector largest_fresh_;
  kernel::TopSelector largest_old_;
  KeptVector residual_;
  AlignedVector<float> values_;  // what is selected, then what was left of it
  StepGuard guard_;
};

}  // namespace

const FeedbackEntry& efmixed_entry() {
  static const FeedbackEntry entry{
      .name = "efmixed",
      .summary = "half of what may be sent for the gradient, half for what was left before",
      .paper = "Rudakov et al., Dokl. Math. 2023, arXiv:2401.07788",
      .options = {{.name = "density",
                   .type = OptionType::kNumber,
                   .fallback = "0.1",
                   .min = 1e-6,
                   .max = 1,
                   .unit = "fraction",
                   .help = "share of values sent, both halves together; the codec's own"}},
      .make = [](const Options& options, const StreamSpec& stream) {
        const size_t count = stream.count();
        const auto wanted = static_cast<size_t>(
            std::llround(options.number("density") * static_cast<double>(count)));
        return std::make_unique<EfMixed>(
            std::clamp<size_t>(wanted, std::min<size_t>(1, count), count), count);
      }};
  return entry;
}

}  // namespace thinwire
