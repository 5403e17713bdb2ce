// Moves of dense and scatter-reduce: parts go to owners, owners hand out means.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "exchange/layout/shard.h"
#include "plan/moves.h"

namespace thinwire {
namespace {

double encode_seconds(const StepLayout& layout, const Chunk& chunk) {
  double seconds = 0;
  for (const ChunkPart& part : chunk.parts)
    seconds += layout.encode_seconds(*part.stream, part.range.count);
  return seconds;
}

double decode_seconds(const StepLayout& layout, const Chunk& chunk) {
  double seconds = 0;
  for (const ChunkPart& part : chunk.parts)
    seconds += layout.decode_seconds(*part.stream, part.range.count);
  return seconds;
}

// One chunk of every owner, by owner; null where an owner has none.
Move owner_move(const StepLayout& layout, const std::vector<const Chunk*>& chunks, size_t rank) {
  const auto others = static_cast<double>(chunks.size() - 1);
  Leg parts, sums, means;
  for (size_t owner = 0; owner < chunks.size(); ++owner) {
    if (owner == rank || chunks[owner] == nullptr) continue;
    parts.encode_seconds += encode_seconds(layout, *chunks[owner]);
    parts.sent += static_cast<double>(chunks[owner]->size);
    sums.received += static_cast<double>(chunks[owner]->size);
    means.decode_seconds += decode_seconds(layout, *chunks[owner]);
  }
  if (chunks[rank] != nullptr) {
    const Chunk& own = *chunks[rank];
    parts.received = others * static_cast<double>(own.size);
    sums.sent = parts.received;
    sums.encode_seconds = encode_seconds(layout, own);
    sums.decode_seconds =
        (others + 1) * decode_seconds(layout, own);  // contributions, and the mean
  }
  return {.bucket = 0, .after = Move::kAtOnce, .legs = {parts, sums, means}};
}

}  // namespace

void add_dense(const StepLayout& layout, const LaidSection& section, size_t rank, Moves& to) {
  Coders coders;
  for (size_t bucket = 0; bucket < section.buckets.size(); ++bucket) {
    const std::vector<Chunk> shards =
        make_shards(layout.streams(), section.buckets[bucket], layout.ranks(), coders);
    std::vector<const Chunk*> chunks;
    for (const Chunk& shard : shards) chunks.push_back(&shard);
    to.moves.push_back(owner_move(layout, chunks, rank));
    to.moves.back().bucket = section.places[bucket];
  }
}

// Chunks of the same number on the routes of all owners are one move.
void add_scatter(const StepLayout& layout, const LaidSection& section, size_t rank, Moves& to) {
  const size_t n = layout.ranks();
  const size_t window = window_of(n);
  const size_t before = to.moves.size();
  for (size_t bucket = 0; bucket < section.buckets.size(); ++bucket) {
    const auto begin = [&](size_t owner) {
      return bucket == 0 ? 0 : section.chunks->route(owner).ends[bucket - 1];
    };
    const auto count = [&](size_t owner) {
      return section.chunks->route(owner).ends[bucket] - begin(owner);
    };
    size_t rows = 0;
    for (size_t owner = 0; owner < n; ++owner) rows = std::max(rows, count(owner));
    for (size_t row = 0; row < rows; ++row) {
      std::vector<const Chunk*> chunks(n);
      for (size_t owner = 0; owner < n; ++owner)
        if (row < count(owner))
          chunks[owner] = &section.chunks->route(owner).chunks[begin(owner) + row];
      Move move = owner_move(layout, chunks, rank);
      move.bucket = section.places[bucket];
      const size_t number = to.moves.size() - before;
      if (number >= window) move.after = to.moves.size() - window;
      to.moves.push_back(std::move(move));
    }
  }
}

}  // namespace thinwire
