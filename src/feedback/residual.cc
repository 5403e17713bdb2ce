// residual: what one message could not carry is added to the next gradient (error feedback).
//
//   u_t = beta r_{t-1} + gamma g_t,   r_t = u_t - decode(encode(u_t)),   r_0 = 0
//
// With both weights 1, the default, this is the classic rule [Seide et al., Interspeech 2014;
// Karimireddy et al., ICML 2019]; the weights are those of [Xu et al., GRACE, ICDCS 2021]. beta < 1
// forgets: what is sent and kept adds up to what is owed only at beta = 1. gamma = the learning
// rate keeps the memory in units of steps of the weights [Karimireddy et al.].
//
// Two buffers of 4 bytes per value: the committed residual, which a step only reads, and u, which
// the encoder turns into the next residual where it lies. Commit swaps them; rollback has nothing
// to undo. A third holds gamma g unless gamma is 1. With a lossless codec and nothing that waits
// the signal is gamma g, for gamma = 1 the gradient where it lies, as without a memory.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "feedback/feedback_rules.h"
#include "feedback/lossless_step.h"
#include "feedback/one_vector_memory.h"

namespace thinwire {
namespace {

class Residual final : public OneVectorMemory {
 public:
  Residual(float beta, float gamma, size_t count, SharedPlace place)
      : OneVectorMemory("residual", "residual", count, std::move(place)),
        beta_(beta),
        gamma_(gamma),
        weighted_(this->place().zeros(gamma == 1 ? 0 : count)) {}

  bool only_adds() const noexcept override { return true; }

  // The next signal has it once.
  bool owe(std::span<const float> debt) override {
    if (beta_ == 0 || (beta_ == 1 && gamma_ == 1)) return false;
    kept_.add(1 / beta_, debt);
    lossless_.reset();
    return true;
  }

  size_t held_bytes() const override { return kept_.held_bytes() + weighted_.values.size_bytes(); }

  std::span<float> rest() noexcept override {
    return lossless_.leaves_nothing() ? std::span<float>() : kept_.next;
  }

  void commit() override {
    guard_.commit();
    if (!lossless_.commit()) kept_.commit();
  }
  void rollback() override {
    lossless_.rollback();
    OneVectorMemory::rollback();
  }
  Status load(const StateArrays& arrays) override {
    if (Status status = OneVectorMemory::load(arrays); !status) return status;
    lossless_.reset();
    return Status::ok();
  }

 private:
  void begin_step(const Call& call) override { lossless_.begin(call, kept_); }

  Signal form(std::span<const float> gradient, size_t begin) override {
    const std::span<const float> own = weigh(gradient, begin);
    if (lossless_.leaves_nothing())
      return {.values = own, .fresh = own, .moments = place().moments(own)};
    const auto now = kept_.now.subspan(begin, gradient.size());
    const auto next = kept_.next.subspan(begin, gradient.size());
    const Moments moments = place().weighted_sum_with_moments(beta_, now, 1, own, next);
    return {.values = next, .fresh = own, .moments = moments};
  }

  // gamma g is this step's own part of the signal, which methods may look at by itself.
  std::span<const float> weigh(std::span<const float> gradient, size_t begin) {
    if (gamma_ == 1) return gradient;
    const auto weighted = weighted_.values.subspan(begin, gradient.size());
    place().scaled(gradient, gamma_, weighted);
    return weighted;
  }

  LosslessStep lossless_;
  const float beta_;
  const float gamma_;
  const MemoryPlace::Vector weighted_;  // empty where gamma is 1
};

std::unique_ptr<Feedback> make(const Options& options, const StreamSpec& stream,
                               SharedPlace place) {
  return std::make_unique<Residual>(static_cast<float>(options.number("beta")),
                                    static_cast<float>(options.number("gamma")), stream.count(),
                                    std::move(place));
}

}  // namespace

const FeedbackEntry& residual_entry() {
  static const FeedbackEntry entry{.name = "residual",
                                   .summary = "adds what was not sent to the next gradient",
                                   .paper = "Seide et al., Interspeech 2014",
                                   .options = {{.name = "beta",
                                                .type = OptionType::kNumber,
                                                .fallback = "1",
                                                .min = 0,
                                                .max = 1,
                                                .help = "weight of the residual; below 1 it fades"},
                                               {.name = "gamma",
                                                .type = OptionType::kNumber,
                                                .fallback = "1",
                                                .min = 0,
                                                .max = 1e6,
                                                .help = "weight of the gradient"}},
                                   .make = make_here(make),
                                   .on_device = make_on_device(make),
                                   .owes = true};
  return entry;
}

}  // namespace thinwire
