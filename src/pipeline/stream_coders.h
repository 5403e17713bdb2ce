// StreamCoders: the sending side of a boundary's streams: an encoder and a memory each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/boundary_plan.h"
#include "stream/coded_stream.h"
#include "thinwire/codec.h"

namespace thinwire {

// All streams of a boundary, made when first used: per sample one of each place in a step; else one
// of each micro-batch and number of samples coded, as others than all may be.
class StreamCoders final : public Stateful {
 public:
  explicit StreamCoders(const BoundaryPlan& plan);

  // Writes u32 size and payload of one stream and returns the bytes. `place` is that of its sample
  // in the micro-batch; `samples` are those of the stream.
  std::optional<size_t> encode(std::span<const float> values, const Visit& visit, size_t place,
                               size_t samples, std::span<std::byte> out);
  void commit();
  void rollback();
  void change_codec();  // to the plan's. Between steps

  StateArrays save() const override;
  Status load(const StateArrays& arrays) override;

 private:
  // By the stream's number: what has the same place in every step. Null until it is first used.
  using Streams = std::vector<std::unique_ptr<CodedStream>>;

  StreamSpec spec_of(size_t index) const;
  StreamCodec codec() const { return {.codec = plan_.codec, .text = plan_.codec_text}; }
  std::unique_ptr<CodedStream> make(size_t index) const;

  const BoundaryPlan& plan_;
  Streams streams_;
};

}  // namespace thinwire
