// A memory that sends differences to a vector that all ranks hold, for synchronisers of weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "feedback/kept_vector.h"
#include "thinwire/feedback.h"

namespace thinwire {

// r is the start at first, and
//
//   frame = encode(x - r),   r <- r + decode(frame)
//
// on the sender and on all who receive the frame, so that r has the same bits everywhere. A step of
// the sender is prepare and receive, that of the others receive alone. What a frame lacks of x
// needs no memory: it is in the next difference, whoever sends that.
//
// Not in the registry, because it has to be told the start. 8 bytes per value.
class Reference final : public Feedback {
 public:
  explicit Reference(std::span<const float> start);

  // r, which decoders add a frame's values to.
  std::span<const float> values() const noexcept { return kept_.now; }

  Signal prepare(std::span<const float> values, const Call& call) override;
  std::span<float> rest() noexcept override { return {}; }

  // Takes the next r, which is what all took the frame for.
  void receive(std::span<float> next) override;

  void commit() override;
  void rollback() override { received_ = false; }

  // At another number of ranks r is the mean of equal ones, which it is itself.
  StateArrays save() const override { return {kept_.write("values")}; }
  Status load(const StateArrays& arrays) override;

 private:
  KeptVector kept_;  // `next` is the difference, then the next r
  bool received_ = false;
};

}  // namespace thinwire
