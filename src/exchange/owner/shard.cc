// Cuts a bucket into shards, of equal length or at the borders of streams.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner/shard.h"

#include <algorithm>

namespace thinwire {

std::vector<Chunk> make_shards(const Streams& streams, const Bucket& bucket, size_t n,
                               Coders& coders) {
  size_t total = 0;
  for (const Piece& piece : bucket) total += piece.count;
  std::vector<Chunk> shards(n);
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
      const size_t count = std::min(piece.count - begin, border - at - begin);
      append_part(shards[owner], *streams[piece.stream], {piece.begin + begin, count}, coders);
      begin += count;
    }
    at += piece.count;
  }
  return shards;
}

std::vector<size_t> owners_of(const Streams& streams) {
  std::vector<size_t> owners;
  for (const auto& stream : streams)
    if (stream->owner()) owners.push_back(*stream->owner());
  return owners.size() == streams.size() ? owners : std::vector<size_t>();
}

std::vector<Chunk> deal_out(const Streams& streams, const Bucket& bucket, size_t n,
                            std::span<const size_t> owner_of, Coders& coders) {
  std::vector<Chunk> shards(n);
  for (const Piece& piece : bucket)
    if (piece.count > 0)
      append_part(shards[owner_of[piece.stream]], *streams[piece.stream],
                  {piece.begin, piece.count}, coders);
  return shards;
}

}  // namespace thinwire
