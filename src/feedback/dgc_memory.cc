// dgc: accumulates velocities instead of gradients, and stops both where something was sent [Lin et
// al., ICLR 2018, arXiv:1712.01887, sections 3.1 and 3.2]. Codecs are free; the paper's is `dgc`.
//
//   g <- g x min(1, clip / (sqrt(n) ||g||))      local clipping, on n ranks; clip = 0: none
//   u' = momentum u + (1 - dampening) g          momentum correction; u' = g in the first step
//   v' = v + u'
//   v' <- v' - decode(encode(v'))                 what was left
//   u' <- 0 where something was sent              momentum factor masking, if `mask`
//
// nesterov: v' = v + (1 - dampening) g + momentum u', torch's step. The authors' repository
// remembers momentum times this u, which enters v alike as long as momentum stays the same.
//
// The optimiser that gets the mean must have no momentum of its own, or it is applied twice.
//
// Clipping comes before anything is accumulated (VelocityMemory). The norm is that of the stream:
// the model's where it is one vector, else the tensor's, as in the repository.
//
// Masking is against velocities that outlived their gradients: what a position sent after many
// steps has in it the momentum of all of them. A position counts as sent where what everybody
// decoded is not zero, that is where less than v' is left. The paper's mask, |v'| > threshold, is
// the same for exact values; this one holds for every codec. v' needs no buffer to compare with: it
// is formed again, everywhere, or at the positions that a sparse codec kept where there are few of
// them. Where a part of the stream was sent whole, with nothing left of it, nothing of it had
// waited, and its velocities go on: a codec that leaves nothing gives SGD with momentum.
//
// v' + sent = v + u' in every step. Four buffers of 4 bytes per value.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/feedback_rules.h"
#include "feedback/memory_place.h"
#include "feedback/velocity_memory.h"
#include "feedback/velocity_pass.h"
#include "kernel/memory_passes.h"

namespace thinwire {
namespace {

class MomentumCorrection final : public VelocityMemory {
 public:
  MomentumCorrection(const Options& options, const StreamSpec& stream, const SharedPlace& place)
      : VelocityMemory("dgc", options, stream, place), mask_(options.flag("mask")) {}

  // A pass over all values reads every cache line, and a position costs one line of 16 floats.
  size_t most_positions() const noexcept override { return mask_ ? velocity_.now.size() / 16 : 0; }

 private:
  Signal form(std::span<const float> gradient) override {
    const Moments moments =
        form_ranges(place(), rules_, 0, residual_.next, [&](const MomentumRules::Range& range) {
          return place().add_velocity(rule_of(range), range.of(gradient), range.of(velocity_.now),
                                      range.of(residual_.now), range.of(velocity_.next),
                                      range.of(residual_.next));
        });
    return {.values = residual_.next, .fresh = velocity_.next, .moments = moments};
  }

  void keep(std::span<const float> gradient, size_t begin, size_t count) override {
    if (!masks(begin, count)) return;
    rules_.each(begin, count, [&](const MomentumRules::Range& range) {
      place().mask_velocity(rule_of(range), range.of(gradient), range.of(residual_.now),
                            range.of(residual_.next), range.of(velocity_.next));
    });
  }

  void keep_at(std::span<const float> gradient, std::span<const uint32_t> positions) override {
    if (!masks(0, gradient.size())) return;
    rules_.each_at(positions, gradient.size(),
                   [&](const MomentumRules::Range& range, std::span<const uint32_t> here) {
                     place().mask_velocity_at(rule_of(range), here, gradient, residual_.now,
                                              residual_.next, velocity_.next);
                   });
  }

  // Whether the velocities of what was sent of these values end. A codec that leaves most of them
  // has left something among the first, so that this reads few.
  bool masks(size_t begin, size_t count) const {
    return mask_ && place().any_nonzero(residual_.next.subspan(begin, count));
  }

  const bool mask_;
};

std::unique_ptr<Feedback> make(const Options& options, const StreamSpec& stream,
                               SharedPlace place) {
  return std::make_unique<MomentumCorrection>(options, stream, place);
}

std::vector<OptionInfo> rows() {
  std::vector<OptionInfo> all = momentum_rows();
  all.push_back({.name = "mask",
                 .type = OptionType::kFlag,
                 .fallback = "true",
                 .help = "velocities end where something was sent"});
  all.push_back(clip_row());
  return all;
}

}  // namespace

const FeedbackEntry& dgc_memory_entry() {
  static const FeedbackEntry entry{
      .name = "dgc",
      .summary = "momentum before the exchange, stopped where something was sent",
      .paper = "Deep Gradient Compression, ICLR 2018, arXiv:1712.01887",
      .options = rows(),
      .make = make_here(make),
      .on_device = make_on_device(make),
      .momentum = [](const Options& options) { return options.number("momentum"); },
      .plain = velocity_text,
      .owes = true};
  return entry;
}

}  // namespace thinwire
