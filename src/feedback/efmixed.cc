// efmixed: half of what may be sent goes to the gradient, half to what was left before [Rudakov et al.,
// arXiv:2401.07788; the rule is only described there, not defined].
//
//   k = density x count, rounded, at least 1
//   sent: the k - k/2 largest |g| and the k/2 largest |e|; where both are, g + e
//   e <- what was not sent of either
//
// In plain error feedback a residual that has grown large displaces the gradient; here both have
// their share. The selection is the memory's: a sparsifier that gets it at the same density finds at
// most k values that are not zero, and sends them all. What any codec leaves of them returns to e,
// so that sent + e is g + e_old, each value rounded twice at most.
//
// Ties go to the lowest position, zeros are never selected. Three buffers of 4 bytes per value, and
// 8 bytes for each of the k. Two exact selections: about eight reads of a vector in all.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "feedback/feedback_rules.h"
#include "feedback/kept_vector.h"
#include "feedback/step_guard.h"
#include "kernel/kth_magnitude.h"
#include "kernel/memory_passes.h"
#include "kernel/select.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr const char* kArray = "residual";

// Positions of the largest magnitudes of a vector, in any order.
class Largest {
 public:
  explicit Largest(size_t wanted) : positions_(wanted), values_(wanted) {}

  // Good until the next call. REQUIRES: finite values, as many as were wanted or more.
  std::span<const uint32_t> find(std::span<const float> values) {
    if (positions_.empty()) return {};
    const float least = kernel::kth_magnitude(values, positions_.size()).magnitude;
    size_t found = kernel::select_above(values, 0, least, positions_, values_).kept;
    if (least == 0) return std::span(positions_).first(found);
    for (size_t i = 0; found < positions_.size(); ++i)  // equal ones, from the lowest position up
      if (std::abs(values[i]) == least) positions_[found++] = static_cast<uint32_t>(i);
    return positions_;
  }

 private:
  std::vector<uint32_t> positions_;
  std::vector<float> values_;
};

class EfMixed final : public Feedback {
 public:
  EfMixed(size_t kept, size_t count)
      : largest_fresh_(kept - kept / 2),
        largest_old_(kept / 2),
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

    for (const uint32_t i : largest_fresh_.find(gradient)) {
      values_[i] = gradient[i];
      left[i] = old[i];
    }
    for (const uint32_t i : largest_old_.find(old)) {
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

  StateArrays save() const override { return {residual_.write(kArray)}; }
  Status load(const StateArrays& arrays) override {
    if (Status status = residual_.read(arrays, kArray); !status) return status;
    residual_.commit();
    guard_.rollback();
    return Status::ok();
  }

 private:
  Largest largest_fresh_;
  Largest largest_old_;
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
