// velocity: the momentum of SGD on each rank's gradient, for codecs that leave nothing to remember,
// and for the tensors that travel uncompressed beside a stream of `dgc`.
//
//   u' = momentum u + (1 - dampening) g,   u' = g in the first step
//
// What is sent is u', or (1 - dampening) g + momentum u' with nesterov. The mean of velocities is
// the velocity of the mean, so this is SGD with momentum to rounding where all arrives. The
// optimiser must have none of its own.
//
// Two buffers of 4 bytes per value, and with nesterov a third of what is sent.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "feedback/feedback_rules.h"
#include "feedback/momentum_rules.h"
#include "feedback/one_vector_memory.h"
#include "feedback/velocity_pass.h"

namespace thinwire {
namespace {

class Velocity final : public OneVectorMemory {
 public:
  Velocity(const Options& options, const StreamSpec& stream, SharedPlace place)
      : OneVectorMemory("velocity", "velocity", stream.count(), std::move(place)),
        rules_(options, stream) {
    make_room();
  }

  void set_momentum(std::span<const Momentum> of_tensors) override {
    rules_.set(of_tensors);
    make_room();
  }

  std::span<float> rest() noexcept override { return {}; }

  void commit() override {
    OneVectorMemory::commit();
    rules_.commit();
  }

  size_t held_bytes() const override { return kept_.held_bytes() + ahead_.values.size_bytes(); }
  StateArrays save() const override {
    StateArrays arrays = OneVectorMemory::save();
    rules_.write(arrays);
    return arrays;
  }
  Status load(const StateArrays& arrays) override {
    bool begun = false;
    if (Status status = rules_.read(arrays, begun); !status) return status;
    if (Status status = OneVectorMemory::load(arrays); !status) return status;
    rules_.adopt(begun);
    return Status::ok();
  }

 private:
  void make_room() {
    if (rules_.any_nesterov() && ahead_.owner == nullptr) ahead_ = place().zeros(kept_.now.size());
  }

  Signal form(std::span<const float> gradient, size_t begin) override {
    const size_t count = gradient.size();
    const auto next = kept_.next.subspan(begin, count);
    const auto ahead = rules_.any_nesterov() ? ahead_.values.subspan(begin, count) : next;
    const Moments moments = form_velocity(place(), rules_, 1.0f,
                                          {.begin = begin,
                                           .gradient = gradient,
                                           .velocity = kept_.now.subspan(begin, count),
                                           .new_velocity = next,
                                           .signal = ahead});
    return {.values = ahead, .fresh = {}, .moments = moments};
  }

  MomentumRules rules_;
  MemoryPlace::Vector ahead_;  // g + momentum u', where some tensor wants that
};

std::unique_ptr<Feedback> make(const Options& options, const StreamSpec& stream,
                               SharedPlace place) {
  return std::make_unique<Velocity>(options, stream, std::move(place));
}

}  // namespace

const FeedbackEntry& velocity_entry() {
  static const FeedbackEntry entry{
      .name = "velocity",
      .summary = "the momentum of SGD before the exchange, and no remainder",
      .paper = {},
      .options = momentum_rows(),
      .make = make_here(make),
      .on_device = make_on_device(make),
      .momentum = [](const Options& options) { return options.number("momentum"); },
      .plain = velocity_text};
  return entry;
}

}  // namespace thinwire
