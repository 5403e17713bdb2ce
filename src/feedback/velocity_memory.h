// The base of memories that keep a velocity and, of what it added up to, the part that was not
// sent.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "feedback/kept_vector.h"
#include "feedback/lossless_step.h"
#include "feedback/momentum_rules.h"
#include "feedback/step_guard.h"
#include "feedback/velocity_pass.h"
#include "kernel/memory_passes.h"
#include "thinwire/feedback.h"

namespace thinwire {

// A step reads the vectors' `now` and writes their `next`, which commit swaps: four buffers of 4
// bytes per value. With a lossless codec and nothing that waits,
// these memories are SGD with momentum. Such a step costs what a step of `velocity` costs, and has
// no rest(). Its signal is that of the other steps, bit for bit but for the sign of zeros.
//
// With the option `clip` a gradient that is longer than clip / sqrt(n) is shortened to that before
// anything is accumulated, n being the number of ranks in the group: the sum of n gradients clipped
// there is about as long as one clipped at `clip`. n is given with each step, as a resumed run may
// have other ranks.
class VelocityMemory : public Feedback {
 public:
  void set_momentum(std::span<const Momentum> of_tensors) override { rules_.set(of_tensors); }

  Signal prepare(std::span<const float> gradient, const Call& call) override {
    guard_.prepare(gradient.size());
    factor_ = factor_of(gradient, call);
    lossless_.begin(call, residual_);
    return lossless_.leaves_nothing() ? form_alone(gradient) : form(gradient);
  }

  bool owe(std::span<const float> debt) override {
    residual_.add(1, debt);
    lossless_.reset();
    return true;
  }

  std::span<float> rest() noexcept override {
    return lossless_.leaves_nothing() ? std::span<float>() : rest_of_signal();
  }
  std::span<const float> left() noexcept override {
    return lossless_.leaves_nothing() ? std::span<float>() : residual_.next;
  }

  void sent(std::span<const float> gradient, size_t begin, size_t count) override {
    guard_.sent(gradient.size(), begin, count);
    if (count > 0 && !lossless_.leaves_nothing()) keep(gradient, begin, count);
    if (guard_.all_sent()) drop_signal();
  }
  void sent_at(std::span<const float> gradient, std::span<const uint32_t> positions) override {
    guard_.sent(gradient.size(), 0, gradient.size());
    if (!lossless_.leaves_nothing()) keep_at(gradient, positions);
    drop_signal();
  }

  void commit() override {
    guard_.commit_all_sent();
    velocity_.commit();
    rules_.commit();
    if (!lossless_.commit()) residual_.commit();
  }
  void rollback() override {
    drop_signal();
    lossless_.rollback();
    guard_.rollback();
  }

  double owed_squares() const override {
    return place().moments(velocity_.now).square_sum + place().moments(residual_.now).square_sum;
  }
  size_t held_bytes() const override { return velocity_.held_bytes() + residual_.held_bytes(); }
  StateArrays save() const override {
    StateArrays arrays = {velocity_.write("velocity"), residual_.write("residual")};
    rules_.write(arrays);
    return arrays;
  }
  Status load(const StateArrays& arrays) override {
    bool begun = false;
    if (Status status = rules_.read(arrays, begun); !status) return status;
    if (Status status = velocity_.read(arrays, "velocity"); !status) return status;
    if (Status status = residual_.read(arrays, "residual"); !status) return status;
    velocity_.commit();
    residual_.commit();
    rules_.adopt(begun);
    drop_signal();
    lossless_.reset();
    guard_.rollback();
    return Status::ok();
  }

 protected:
  // `name` must outlive the memory.
  VelocityMemory(std::string_view name, const Options& options, const StreamSpec& stream,
                 const SharedPlace& place)
      : rules_(options, stream),
        velocity_(stream.count(), place),
        residual_(stream.count(), place),
        guard_(name, stream.count()),
        clip_(options.number("clip")) {}

  // Writes velocity_.next and residual_.next, and the signal, which lies in rest_of_signal().
  virtual Signal form(std::span<const float> gradient) = 0;

  // From form until drop_signal, which is called once all was sent, and at rollback and load.
  virtual std::span<float> rest_of_signal() noexcept { return residual_.next; }
  virtual void drop_signal() noexcept {}

  // The work of sent and sent_at, in steps that have a rest().
  virtual void keep(std::span<const float> gradient, size_t begin, size_t count) = 0;
  virtual void keep_at(std::span<const float> gradient, std::span<const uint32_t> /*positions*/) {
    keep(gradient, 0, gradient.size());
  }

  MemoryPlace& place() const noexcept { return residual_.place(); }

  kernel::MomentumRule rule_of(const MomentumRules::Range& range) const {
    return {.momentum = static_cast<float>(range.momentum.momentum),
            .scale = factor_ * rules_.share(range.momentum),
            .nesterov = range.momentum.nesterov};
  }

  MomentumRules rules_;
  KeptVector velocity_;
  KeptVector residual_;

 private:
  // What the whole gradient is multiplied by first. A norm that is not finite lets the gradient
  // through, to be found.
  float factor_of(std::span<const float> gradient, const Call& call) const {
    if (clip_ <= 0) return 1;
    const double norm = std::sqrt(place().moments(gradient).square_sum);
    const double limit = clip_ / std::sqrt(static_cast<double>(call.ranks));
    return std::isfinite(norm) && norm > limit ? static_cast<float>(limit / norm) : 1.0f;
  }

  // residual_.next serves as memory for what Nesterov's form sends, and residual_.now stays zero.
  Signal form_alone(std::span<const float> gradient) {
    const std::span<float> signal = rules_.any_nesterov() ? residual_.next : velocity_.next;
    const Moments moments = form_velocity(place(), rules_, factor_,
                                          {.begin = 0,
                                           .gradient = gradient,
                                           .velocity = velocity_.now,
                                           .new_velocity = velocity_.next,
                                           .signal = signal});
    return {.values = signal, .fresh = velocity_.next, .moments = moments};
  }

  StepGuard guard_;
  LosslessStep lossless_;
  const double clip_;
  float factor_ = 1;  // of this step's gradient
};

// The row of the option `clip`.
inline OptionInfo clip_row() {
  return {.name = "clip",
          .type = OptionType::kNumber,
          .fallback = "0",
          .min = 0,
          .max = 1e30,
          .help = "largest norm of a gradient, times sqrt(ranks); 0: any"};
}

}  // namespace thinwire
