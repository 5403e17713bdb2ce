// StepLayout: the streams, buckets, sections and codec costs of an exchange, built without running
// it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "exchange/layout/plan.h"
#include "exchange/methods/method.h"
#include "exchange/owner/chunk_plan.h"
#include "exchange/terms/sections.h"
#include "plan/owner_rows.h"
#include "thinwire/step_plan.h"
#include "thinwire/store.h"

namespace thinwire {

// The tensors of one codec, memory and method.
struct LaidSection {
  const MethodEntry* method = nullptr;
  bool keeps_rest = false;  // its memory, what a message lacked
  std::vector<Bucket> buckets;
  std::vector<size_t> places;         // of each bucket among all, in the order in which they travel
  std::unique_ptr<ChunkPlan> chunks;  // of scatter-reduce only
  std::vector<OwnerRow> rows;         // of methods with owners
};

// Fails as make_exchange does, and for what cannot be played (step_plan.h).
Result<Sections> resolve_playable(const std::vector<TensorSpec>& tensors,
                                  const ExchangeOptions& options, int ranks);

// Laid out by the functions that the exchange itself uses. Its streams have codecs, and no memory.
class StepLayout {
 public:
  // Of an exchange without groups inside, or of that between groups, for each of which a rank
  // stands.
  StepLayout(const Sections& sections, const std::vector<TensorSpec>& tensors,
             const ExchangeOptions& options, size_t ranks, CostTable& costs);

  size_t ranks() const noexcept { return ranks_; }
  const ExchangeOptions& options() const noexcept { return options_; }
  const Streams& streams() const noexcept { return streams_; }
  const std::vector<LaidSection>& sections() const noexcept { return sections_; }
  const Plan& plan() const noexcept { return plan_; }

  const ActiveStream& stream(const Piece& piece) const { return *streams_[piece.stream]; }
  const CodecCost& cost(const ActiveStream& stream) const { return costs_[stream.index()]; }

  // Bytes of the frame in which a rank sends the whole stream; an estimate unless the codec is of
  // fixed size.
  double frame_size(const ActiveStream& stream) const;

  // Seconds to encode or to decode `count` values of a stream in one frame.
  double encode_seconds(const ActiveStream& stream, size_t count) const;
  double decode_seconds(const ActiveStream& stream, size_t count) const;

  // Of a rank: memories, encoder states, and what it keeps as an owner.
  double memory_bytes() const;

 private:
  void lay(const Sections& sections, const std::vector<TensorSpec>& tensors, CostTable& costs);

  const ExchangeOptions options_;
  const size_t ranks_;
  Store store_;  // of encoders
  Plan plan_;
  Streams streams_;
  std::vector<CodecCost> costs_;  // by stream
  std::vector<LaidSection> sections_;
};

}  // namespace thinwire
