// RoundPlan: the layout of the messages by which ranks agree before they encode, and which buckets
// share one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "exchange/layout/plan.h"
#include "exchange/wire/active_stream.h"
#include "thinwire/codec.h"

namespace thinwire {

// The offer of one stream.
struct RoundPart {
  size_t member = 0;  // of the streams given
  size_t round = 0;   // of the stream: plain ones have one only
  size_t begin = 0;   // in the floats of the round
  size_t size = 0;    // bytes, at most
};

struct RoundPlan {
  Round::Combine combine = Round::Combine::kMean;
  std::vector<RoundPart> parts;
  size_t size = 0;  // bytes: of the floats, or of the longest message
};

// The rounds of these streams in even or in odd steps, in order. `with_plain`: the values of plain
// streams ride in the first round of means. Throws Error(kContract) if a round of one codec does
// not fit that of another.
std::vector<RoundPlan> plan_rounds(std::span<ActiveStream* const> streams, bool with_plain,
                                   bool odd_step);

// Buckets whose rounds travel together: of each such cargo the end of its buckets, which begin
// where those of the cargo before it end. A cargo is full when what its streams offer in one round
// has bucket_bytes. `streams` are by index.
std::vector<size_t> cargo_ends(const Streams& streams, const std::vector<Bucket>& buckets,
                               size_t bucket_bytes);

}  // namespace thinwire
