// The base of memories that keep one vector and treat each value by itself.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "feedback/kept_vector.h"
#include "feedback/step_guard.h"
#include "thinwire/feedback.h"

namespace thinwire {

// A step reads kept_.now and writes kept_.next, which commit swaps. Saved under the name of the
// array.
class OneVectorMemory : public Feedback {
 public:
  Signal prepare(std::span<const float> gradient, const Call& call) override {
    guard_.prepare(gradient.size());
    begin_step(call);
    return form(gradient, 0);
  }
  std::optional<Signal> prepare_part(std::span<const float> gradient, size_t begin,
                                     const Call& call) override {
    guard_.prepare_part(begin, gradient.size());
    begin_step(call);
    return form(gradient, begin);
  }

  void commit() override {
    guard_.commit();
    kept_.commit();
  }
  void rollback() override { guard_.rollback(); }

  double owed_squares() const override { return kept_.place().moments(kept_.now).square_sum; }
  size_t held_bytes() const override { return kept_.held_bytes(); }
  StateArrays save() const override { return {kept_.write(array_)}; }
  Status load(const StateArrays& arrays) override {
    if (Status status = kept_.read(arrays, array_); !status) return status;
    kept_.commit();
    guard_.rollback();
    return Status::ok();
  }

 protected:
  // `name` and `array` are static.
  OneVectorMemory(std::string_view name, const char* array, size_t count, SharedPlace place)
      : kept_(count, std::move(place)), guard_(name, count), array_(array) {}

  // Called before form.
  virtual void begin_step(const Call& /*call*/) {}

  // Values [begin, begin + gradient.size()) of the signal.
  virtual Signal form(std::span<const float> gradient, size_t begin) = 0;

  MemoryPlace& place() const noexcept { return kept_.place(); }

  KeptVector kept_;
  StepGuard guard_;

 private:
  const char* array_;
};

}  // namespace thinwire
