// Cuts a bucket into shards, and makes the encoders and decoders of the parts of its streams.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/layout/shard.h"

#include <algorithm>

#include "thinwire/frame.h"

namespace thinwire {
namespace {

Slice make_slice(ActiveStream* stream, size_t begin, size_t count, size_t offset) {
  const StreamSpec spec = single_tensor({.name = stream->spec().name, .shape = {count}});
  return {.stream = stream,
          .begin = begin,
          .count = count,
          .offset = offset,
          .room = kFrameHeaderSize + stream->codec().max_encoded_size(spec),
          .encoder = stream->codec().make_encoder(spec),
          .decoder = stream->codec().make_decoder(spec)};
}

}  // namespace

std::vector<Shard> make_shards(const Streams& streams, const Bucket& bucket, size_t n) {
  size_t total = 0;
  for (const Piece& piece : bucket) total += piece.count;
  std::vector<Shard> shards(n);
  size_t at = 0;     // values before the piece
  size_t owner = 0;  // shard under way
  for (const Piece& piece : bucket) {
    size_t begin = 0;
    while (begin < piece.count) {
      const size_t border = total * (owner + 1) / n;
      if (at + begin == border) {
        ++owner;
        continue;
      }
      Shard& shard = shards[owner];
      Slice slice = make_slice(streams[piece.stream].get(), piece.begin + begin,
                               std::min(piece.count - begin, border - at - begin), shard.size);
      shard.size += slice.room;
      shard.count += slice.count;
      begin += slice.count;
      shard.slices.push_back(std::move(slice));
    }
    at += piece.count;
  }
  return shards;
}

}  // namespace thinwire
