// The sending side of the streams of a boundary: an encoder each, and a memory of what was left.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/boundary_plan.h"
#include "thinwire/codec.h"
#include "thinwire/feedback.h"

namespace thinwire {

// One stream: what has the same place in every step.
class StreamCoder {
 public:
  StreamCoder(const BoundaryPlan& plan, const StreamSpec& stream);

  // Goes on with another codec; what its memory holds stays. Between steps.
  void change_codec(const BoundaryPlan& plan, const StreamSpec& stream);

  // The payload's bytes; none if a value, or what the memory makes of it, is not finite.
  std::optional<size_t> encode(std::span<const float> values, const Call& call,
                               std::span<std::byte> out);
  void commit();
  void rollback();

  StateArrays save() const;
  Status load(const StateArrays& arrays);

 private:
  std::unique_ptr<Feedback> feedback_;
  std::unique_ptr<Encoder> encoder_;
  std::string codec_;  // its name
  bool used_ = false;  // since the last commit or rollback
};

// All streams of a boundary, made when first used: per sample one of each place in a step; else one
// of each micro-batch and number of samples coded, as others than all may be.
class StreamCoders final : public Stateful {
 public:
  explicit StreamCoders(const BoundaryPlan& plan);

  // Writes u32 size and payload of one stream and returns the bytes. `place` is that of its sample in
  // the micro-batch; `samples` are those of the stream.
  std::optional<size_t> encode(std::span<const float> values, const Visit& visit, size_t place,
                               size_t samples, std::span<std::byte> out);
  void commit();
  void rollback();
  void change_codec();  // to the plan's. Between steps

  StateArrays save() const override;
  Status load(const StateArrays& arrays) override;

 private:
  using Coders = std::vector<std::unique_ptr<StreamCoder>>;

  StreamSpec stream(size_t index) const;

  const BoundaryPlan& plan_;
  Coders coders_;
};

}  // namespace thinwire
