// ChunkPlan: which values each owner has in method scatter-reduce, and the chunks in which they are
// sent.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "exchange/layout/plan.h"
#include "exchange/layout/range.h"
#include "exchange/owner/chunk.h"
#include "exchange/wire/active_stream.h"
#include "thinwire/codec.h"

namespace thinwire {

// Open MPI sends messages of up to 64 KiB at once, longer ones after a handshake with the receiver,
// which costs pipelines their flow: 20 MB each way at 1 Gbit/s take 166 ms in chunks of 32 KiB and
// 179 to 189 ms in chunks of 64. A chunk has at most the agreed number of values and this many
// bytes, or it is a single block where that is longer.
inline constexpr size_t kMaxChunkSize = 48 * 1024;

// Chunks that a rank may be ahead of the answers of one owner. 32 of 32 KiB are 8 ms at 1 Gbit/s:
// more than a time slice of whoever shares a core with one of the ranks. Among many ranks each pair
// has less to carry.
size_t window_of(size_t ranks) noexcept;

// Everything that one rank owns, in the order in which it travels.
struct Route {
  std::vector<Chunk> chunks;
  std::vector<size_t> ends;  // chunks of this bucket and those before it, by bucket
};

// The routes of all owners; the same on every rank. Owner of shard j of a stream is rank (j +
// ActiveStream::first) mod n, so that tensors of few blocks do not all fall to the same ranks, and
// neither buckets nor the tensors of other sections matter. A stream that has an owner is not cut.
class ChunkPlan {
 public:
  // REQUIRES: block-local codecs of fixed size; buckets hold whole streams.
  ChunkPlan(const Streams& streams, const std::vector<Bucket>& buckets, size_t n,
            size_t chunk_values);

  const Route& route(size_t owner) const noexcept { return routes_[owner]; }

  // The part of a stream that a rank owns.
  Range shard(const ActiveStream& stream, size_t owner) const noexcept;

  // Of the largest chunk.
  size_t max_count() const noexcept { return max_count_; }
  size_t max_size() const noexcept { return max_size_; }
  size_t max_parts() const noexcept { return max_parts_; }

 private:
  void add(Route& route, size_t bucket, ActiveStream& stream, Range shard, size_t chunk_values);

  std::vector<Route> routes_;  // by owner
  Coders coders_;
  size_t max_count_ = 0;
  size_t max_size_ = 0;
  size_t max_parts_ = 0;
};

}  // namespace thinwire
