// The base of memories that keep a velocity and, of what it added up to, the part that was not sent.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "feedback/kept_vector.h"
#include "feedback/momentum_rules.h"
#include "feedback/step_guard.h"
#include "kernel/vector_moments.h"
#include "thinwire/feedback.h"

namespace thinwire {

// A step reads the vectors' `now` and writes their `next`, which commit swaps: four buffers of 4 bytes
// per value. The signal is in residual_.next.
class VelocityMemory : public Feedback {
 public:
  void set_momentum(std::span<const Momentum> of_tensors) override { rules_.set(of_tensors); }
  std::span<float> rest() noexcept override { return residual_.next; }

  void commit() override {
    guard_.commit_all_sent();
    velocity_.commit();
    residual_.commit();
    rules_.commit();
  }
  void rollback() override { guard_.rollback(); }

  double owed_squares() const override {
    return place().moments(velocity_.now).square_sum + place().moments(residual_.now).square_sum;
  }
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
    guard_.rollback();
    return Status::ok();
  }

 protected:
  // `name` is static.
  VelocityMemory(std::string_view name, const Options& options, const StreamSpec& stream,
                 const SharedPlace& place)
      : rules_(options, stream),
        velocity_(stream.count(), place),
        residual_(stream.count(), place),
        guard_(name, stream.count()) {}

  MemoryPlace& place() const noexcept { return residual_.place(); }

  MomentumRules rules_;
  KeptVector velocity_;
  KeptVector residual_;
  StepGuard guard_;
};

}  // namespace thinwire
