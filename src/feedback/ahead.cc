// ahead: momentum before the exchange, of which a value that is sent takes the rest along, the more
// of it the longer the value waited.
//
//   g <- g x min(1, clip / (sqrt(n) ||g||))      local clipping, on n ranks; clip = 0: none
//   u' = momentum u + (1 - dampening) g          u' = g in the first step
//   d = u', or (1 - dampening) g + momentum u' with nesterov
//   v' = v + d                                   what momentum has added up to and was not sent
//   f = d / v' within [0, 1]; 1 where v' is 0    1: nothing waited; near 0: many steps did
//   s = v' + (1 - f) tail u'                     the signal; tail u' is what u' will still add
//   v' <- s - decode(encode(s)), u' <- f u'      where something was sent
//   v' and u' as they are                        elsewhere
//
// tail = momentum / (1 - momentum), or momentum^2 / (1 - momentum) with nesterov.
//
// Every gradient counts 1 / (1 - momentum) times in the end, as in SGD with momentum: v + tail u +
// what was sent grows by (1 - dampening) g / (1 - momentum) in every step. Momentum that goes on
// after a value was sent (`dgc` without a mask) counts as much, but arrives when the value is sent
// again, many steps later. Momentum that ends there (`dgc`, the mask of Lin et al., ICLR 2018,
// section 3.2) is lost, which makes the learning rate smaller, the more the oftener a value is
// sent. With a codec that leaves nothing f is 1 everywhere, and this is SGD with momentum.
//
// The optimiser that gets the mean must have no momentum of its own, or it is applied twice. v' and
// f need no buffers: v' is written where it stays, and f is formed again where something was sent.
// Four buffers of 4 bytes per value, and one for the signal from form until it is sent, which the
// streams of a place use in turn. What was not sent is not written again. With a lossless codec and
// nothing that waits a step is that of `velocity` (VelocityMemory).
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "feedback/feedback_rules.h"
#include "feedback/velocity_memory.h"
#include "feedback/velocity_pass.h"

namespace thinwire {
namespace {

class Ahead final : public VelocityMemory {
 public:
  Ahead(const Options& options, const StreamSpec& stream, const SharedPlace& place)
      : VelocityMemory("ahead", options, stream, place),
        at_processor_(place == on_processor()),
        pool_(place->scratch_pool()) {}

  // The positions are the faster way at one value in 100, the pass at one in 16 (memory_bench). The
  // limit between them is a guess. A device settles all values, and need not wait for positions.
  size_t most_positions() const noexcept override {
    return at_processor_ ? velocity_.now.size() / 32 : 0;
  }

 private:
  Signal form(std::span<const float> gradient) override {
    if (signal_.owner == nullptr) signal_ = pool_->take(gradient.size());
    const Moments moments =
        form_ranges(place(), rules_, 0, signal_.values, [&](const MomentumRules::Range& range) {
          return place().form_ahead(rule_of(range), tail_of(range), range.of(gradient),
                                    range.of(velocity_.now), range.of(residual_.now),
                                    range.of(velocity_.next), range.of(residual_.next),
                                    range.of(signal_.values));
        });
    return {.values = signal_.values, .fresh = velocity_.next, .moments = moments};
  }

  std::span<float> rest_of_signal() noexcept override {
    return signal_.owner == nullptr ? residual_.next : signal_.values;
  }
  void drop_signal() noexcept override { signal_ = {}; }

  void keep(std::span<const float> gradient, size_t begin, size_t count) override {
    rules_.each(begin, count, [&](const MomentumRules::Range& range) {
      place().settle_ahead(rule_of(range), tail_of(range), range.of(gradient),
                           range.of(signal_.values), range.of(velocity_.next),
                           range.of(residual_.next));
    });
  }

  void keep_at(std::span<const float> gradient, std::span<const uint32_t> positions) override {
    rules_.each_at(positions, gradient.size(),
                   [&](const MomentumRules::Range& range, std::span<const uint32_t> here) {
                     place().settle_ahead_at(rule_of(range), tail_of(range), here, range.begin,
                                             range.of(gradient), range.of(signal_.values),
                                             range.of(velocity_.next), range.of(residual_.next));
                   });
  }

  static float tail_of(const MomentumRules::Range& range) {
    const double momentum = range.momentum.momentum;
    const double next = range.momentum.nesterov ? momentum * momentum : momentum;
    return static_cast<float>(next / (1 - momentum));
  }

  const bool at_processor_;
  const std::shared_ptr<ScratchPool> pool_;
  MemoryPlace::Vector signal_;
};

std::unique_ptr<Feedback> make(const Options& options, const StreamSpec& stream,
                               SharedPlace place) {
  return std::make_unique<Ahead>(options, stream, place);
}

std::vector<OptionInfo> rows() {
  std::vector<OptionInfo> all = momentum_rows();
  all.push_back(clip_row());
  return all;
}

}  // namespace

const FeedbackEntry& ahead_entry() {
  static const FeedbackEntry entry{
      .name = "ahead",
      .summary =
          "momentum before the exchange; a value that waited is sent with what momentum "
          "would still add to it",
      .paper = {},
      .options = rows(),
      .make = make_here(make),
      .on_device = make_on_device(make),
      .momentum = [](const Options& options) { return options.number("momentum"); },
      .plain = velocity_text,
      .owes = true};
  return entry;
}

}  // namespace thinwire
