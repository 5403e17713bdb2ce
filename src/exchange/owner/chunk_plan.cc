// ChunkPlan: assigns shards to owners, cuts them into chunks, and makes their coders.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner/chunk_plan.h"

#include <algorithm>

#include "thinwire/frame.h"

namespace thinwire {
namespace {

// Values whose frame fits into what is left of a message of `limit` bytes.
size_t room_for(const Codec& codec, size_t limit, size_t taken) {
  if (taken + kFrameHeaderSize >= limit) return 0;
  const size_t block = codec.info().block;
  const size_t block_size =
      codec.max_encoded_size(single_tensor({.name = "block", .shape = {block}}));
  return (limit - taken - kFrameHeaderSize) / std::max<size_t>(1, block_size) * block;
}

}  // namespace

size_t window_of(size_t ranks) noexcept {
  constexpr size_t kMost = 32;
  constexpr size_t kLeast = 4;
  return std::max(kLeast, kMost / std::max<size_t>(1, ranks - 1));
}

ChunkPlan::ChunkPlan(const Streams& streams, const std::vector<Bucket>& buckets, size_t n,
                     size_t chunk_values)
    : routes_(n) {
  for (size_t owner = 0; owner < n; ++owner) {
    Route& route = routes_[owner];
    for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
      for (const Piece& piece : buckets[bucket]) {
        ActiveStream& stream = *streams[piece.stream];
        add(route, bucket, stream, shard(stream, owner), chunk_values);
      }
      route.ends.push_back(route.chunks.size());
    }
    for (const Chunk& chunk : route.chunks) {
      max_count_ = std::max(max_count_, chunk.count);
      max_size_ = std::max(max_size_, chunk.size);
      max_parts_ = std::max(max_parts_, chunk.parts.size());
    }
  }
}

Range ChunkPlan::shard(const ActiveStream& stream, size_t owner) const noexcept {
  const size_t n = routes_.size();
  if (stream.owner())
    return *stream.owner() == owner ? Range{0, stream.spec().count()} : Range{0, 0};
  return shard_range(stream.spec().count(), stream.codec().info().block, n,
                     (owner + n - stream.first() % n) % n);
}

void ChunkPlan::add(Route& route, size_t bucket, ActiveStream& stream, Range shard,
                    size_t chunk_values) {
  const size_t block = stream.codec().info().block;
  const auto open_chunk = [&] { route.chunks.emplace_back().bucket = bucket; };
  while (shard.count > 0) {
    if (route.chunks.empty() || route.chunks.back().bucket != bucket) open_chunk();
    Chunk& chunk = route.chunks.back();
    const size_t left = std::min(chunk_values - std::min(chunk_values, chunk.count),
                                 room_for(stream.codec(), kMaxChunkSize, chunk.size));
    size_t count = left >= shard.count ? shard.count : left / block * block;
    if (count == 0 && chunk.count == 0) count = std::min(shard.count, block);
    if (count == 0) {  // no room for a block
      open_chunk();
      continue;
    }
    append_part(chunk, stream, {shard.begin, count}, coders_);
    shard.begin += count;
    shard.count -= count;
  }
}

}  // namespace thinwire
