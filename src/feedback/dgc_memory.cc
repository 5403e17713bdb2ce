// dgc: accumulates velocities instead of gradients, and stops both where something was sent [Lin et
// al., ICLR 2018, arXiv:1712.01887, sections 3.1 and 3.2]. Codecs are free; the paper's is `dgc`.
//
//   g <- g x min(1, clip / (sqrt(n) ||g||))      local clipping, on n ranks; clip = 0: none
//   u' = momentum u + g,   v' = v + u'            momentum correction
//   v' <- v' - decode(encode(v'))                 what was left
//   u' <- 0 where something was sent              momentum factor masking
//
// nesterov (the authors' repository): u' = momentum (u + g), v' = v + u' + g.
//
// The optimiser that gets the mean must have no momentum of its own, or it is applied twice.
//
// Clipping comes before anything is accumulated, at clip / sqrt(n), n being how many ranks are
// averaged: the sum of n gradients clipped there is about as long as one clipped at `clip`. The norm
// is that of the stream: the model's where it is one vector, else the tensor's, as in the repository.
// n is a property of each step, not an option: a resumed run may have other ranks.
//
// A position counts as sent where what everybody decoded is not zero, that is where less than v' is
// left. The paper's mask, |v'| > threshold, is the same for exact values; this one holds for every
// codec and needs no list of positions. v' needs no buffer to compare with: it is formed again.
//
// v' + sent = v + u' in every step. Four buffers of 4 bytes per value.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "feedback/feedback_rules.h"
#include "feedback/kept_vector.h"
#include "feedback/step_guard.h"
#include "kernel/memory_passes.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr const char* kVelocity = "velocity";
constexpr const char* kResidual = "residual";

class MomentumCorrection final : public Feedback {
 public:
  MomentumCorrection(const Options& options, size_t count)
      : clip_(options.number("clip")),
        rule_{.momentum = static_cast<float>(options.number("momentum")),
              .nesterov = options.flag("nesterov")},
        velocity_(count),
        residual_(count),
        guard_("dgc", count) {}

  Signal prepare(std::span<const float> gradient, const Call& call) override {
    guard_.prepare(gradient.size());
    rule_.scale = clip_ > 0 ? clipped(gradient, call.ranks) : 1.0f;
    const Moments moments = kernel::add_velocity(rule_, gradient, velocity_.now, residual_.now,
                                                 velocity_.next, residual_.next);
    return {.values = residual_.next, .fresh = velocity_.next, .moments = moments};
  }
  std::span<float> rest() noexcept override { return residual_.next; }

  void sent(std::span<const float> gradient, size_t begin, size_t count) override {
    guard_.sent(gradient.size(), begin, count);
    kernel::mask_velocity(rule_, gradient.subspan(begin, count),
                          std::span(residual_.now).subspan(begin, count),
                          std::span(residual_.next).subspan(begin, count),
                          std::span(velocity_.next).subspan(begin, count));
  }

  void commit() override {
    guard_.commit_all_sent();
    velocity_.commit();
    residual_.commit();
  }
  void rollback() override { guard_.rollback(); }

  StateArrays save() const override {
    return {velocity_.write(kVelocity), residual_.write(kResidual)};
  }
  Status load(const StateArrays& arrays) override {
    if (Status status = velocity_.read(arrays, kVelocity); !status) return status;
    if (Status status = residual_.read(arrays, kResidual); !status) return status;
    velocity_.commit();
    residual_.commit();
    guard_.rollback();
    return Status::ok();
  }

 private:
  // What the gradient is multiplied by. A norm that is not finite lets it through, to be found.
  float clipped(std::span<const float> gradient, uint64_t ranks) const {
    const double norm = std::sqrt(kernel::moments(gradient).square_sum);
    const double limit = clip_ / std::sqrt(static_cast<double>(ranks));
    return std::isfinite(norm) && norm > limit ? static_cast<float>(limit / norm) : 1.0f;
  }

  const double clip_;
  kernel::MomentumRule rule_;
  KeptVector velocity_;
  KeptVector residual_;
  StepGuard guard_;
};

}  // namespace

const FeedbackEntry& dgc_memory_entry() {
  static const FeedbackEntry entry{
      .name = "dgc",
      .summary = "momentum before the exchange, stopped where something was sent",
      .paper = "Deep Gradient Compression, ICLR 2018, arXiv:1712.01887",
      .options = {{.name = "momentum",
                   .type = OptionType::kNumber,
                   .fallback = "0.9",
                   .min = 0,
                   .max = 0.999999,
                   .help = "share of the velocity that goes on; the optimiser's own must be 0"},
                  {.name = "nesterov",
                   .type = OptionType::kFlag,
                   .fallback = "false",
                   .help = "look ahead along the velocity"},
                  {.name = "clip",
                   .type = OptionType::kNumber,
                   .fallback = "0",
                   .min = 0,
                   .max = 1e30,
                   .help = "largest norm of a gradient, times sqrt(ranks); 0: any"}},
      .make = [](const Options& options, const StreamSpec& stream) {
        return std::make_unique<MomentumCorrection>(options, stream.count());
      }};
  return entry;
}

}  // namespace thinwire
