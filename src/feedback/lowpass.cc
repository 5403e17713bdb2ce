// lowpass: ScaleCom's residual, which takes in what was not sent only by and by [Chen et al.,
// NeurIPS 2020, arXiv:2104.11125].
//
//   p = m + g,   m' = (1 - beta) m + beta (p - sent),   m = 0 at first,   0 < beta <= 1
//
// Where nothing was sent that is m + beta g, where all was sent (1 - beta) m: below beta = 1 what
// was sent is not wholly cleared, and what is sent and kept does not add up to what is owed. The
// filter makes memories of ranks alike, on which shared positions depend, at large learning rates.
// beta = 1 is `residual`, to the bit; ScaleCom takes 0.1 for large batches and 1 at the usual ones.
//
// Two buffers, as in `residual`; below beta = 1 a second pass filters what the encoder left.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/feedback_rules.h"
#include "feedback/one_vector_memory.h"
#include "kernel/memory_passes.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

class LowPass final : public OneVectorMemory {
 public:
  LowPass(double beta, size_t count, SharedPlace place)
      : OneVectorMemory("lowpass", "residual", count, std::move(place)),
        beta_(static_cast<float>(beta)),
        keep_(static_cast<float>(1 - beta)) {}

  std::span<float> rest() noexcept override { return kept_.next; }

  void sent(std::span<const float> gradient, size_t begin, size_t count) override {
    guard_.sent(gradient.size(), begin, count);
    if (beta_ == 1) return;
    const auto rest = kept_.next.subspan(begin, count);
    place().weighted_sum(keep_, kept_.now.subspan(begin, count), beta_, rest, rest);
  }

  void commit() override {
    guard_.commit_all_sent();
    kept_.commit();
  }

 private:
  Signal form(std::span<const float> gradient, size_t begin) override {
    const auto now = kept_.now.subspan(begin, gradient.size());
    const auto next = kept_.next.subspan(begin, gradient.size());
    const Moments moments = place().weighted_sum_with_moments(1, gradient, 1, now, next);
    return {.values = next, .fresh = gradient, .moments = moments};
  }

  const float beta_;
  const float keep_;  // 1 - beta
};

std::unique_ptr<Feedback> make(const Options& options, const StreamSpec& stream,
                               SharedPlace place) {
  return std::make_unique<LowPass>(options.number("beta"), stream.count(), std::move(place));
}

}  // namespace

const FeedbackEntry& lowpass_entry() {
  static const FeedbackEntry entry{
      .name = "lowpass",
      .summary = "adds a moving average of what was not sent; beta is the share of each step in it",
      .paper = "ScaleCom, NeurIPS 2020, arXiv:2104.11125",
      .options = {{.name = "beta",
                   .type = OptionType::kNumber,
                   .fallback = "0.1",
                   .min = 1e-6,
                   .max = 1,
                   .help = "share taken in each step; 1: residual"}},
      .make = make_here(make),
      .on_device = make_on_device(make),
      .owes = true};
  return entry;
}

}  // namespace thinwire
