// Moves of gather and sparse-reduce: each rank encodes whole streams by itself.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "exchange/layout/stripes.h"
#include "plan/moves.h"
#include "thinwire/frame.h"

namespace thinwire {
namespace {

constexpr double kLength = sizeof(uint64_t);  // before every message

std::vector<ActiveStream*> members_of(const StepLayout& layout, const Bucket& bucket) {
  std::vector<ActiveStream*> members;
  for (const Piece& piece : bucket) members.push_back(layout.streams()[piece.stream].get());
  return members;
}

// The header of a sparse payload: docs/wire-format.md.
constexpr double kSparseHead = 12;

}  // namespace

void add_gather(const StepLayout& layout, const LaidSection& section, size_t rank, uint64_t step,
                Moves& to) {
  const auto n = static_cast<double>(layout.ranks());
  for (size_t bucket = 0; bucket < section.buckets.size(); ++bucket) {
    const std::vector<ActiveStream*> members = members_of(layout, section.buckets[bucket]);
    double encode = 0, decode = 0, message = kLength;
    bool settles_scale = false;
    for (const ActiveStream* stream : members) {
      const CodecInfo& info = stream->codec().info();
      message += layout.frame_size(*stream);
      encode += layout.encode_seconds(*stream, stream->spec().count());
      decode += n * layout.decode_seconds(*stream, stream->spec().count());
      settles_scale = settles_scale || info.agreed == Agreed::kScale;
      to.exact = to.exact && info.fixed_size;
    }
    Move move{.bucket = section.places[bucket], .after = Move::kAtOnce, .legs = {}};
    if (settles_scale) move.legs = round_legs(layout, members, false, rank, step, 0, to.exact);
    move.legs.push_back({.encode_seconds = encode,
                         .decode_seconds = 0,
                         .sent = (n - 1) * message,
                         .received = (n - 1) * message});
    move.legs.push_back({.encode_seconds = 0, .decode_seconds = decode});
    to.moves.push_back(std::move(move));
  }
}

// Of a stream with a payload of c bytes, a region gets its share by values, with a header. What is
// handed out is as long as what a rank sent of the region.
void add_sparse(const StepLayout& layout, const LaidSection& section, size_t rank, Moves& to) {
  const size_t n = layout.ranks();
  const auto others = static_cast<double>(n - 1);
  to.exact = false;
  for (size_t bucket = 0; bucket < section.buckets.size(); ++bucket) {
    std::vector<double> message(n, 0);  // by owner
    Leg parts, sums, means;
    for (const ActiveStream* stream : members_of(layout, section.buckets[bucket])) {
      const auto count = static_cast<double>(stream->spec().count());
      const double payload = layout.frame_size(*stream) - kFrameHeaderSize;
      const Stripes stripes(stream->spec().count(), n);
      const CodecCost& cost = layout.cost(*stream);
      for (size_t owner = 0; owner < n; ++owner) {
        const auto region = stripes.region_of(owner, n, stream->first());
        if (!region) continue;
        const double share = static_cast<double>(stripes.size(*region)) / std::max(1.0, count);
        if (message[owner] == 0) message[owner] = kLength;
        message[owner] +=
            kFrameHeaderSize + (stream->is_plain() ? 0 : kSparseHead) + share * payload;
        if (owner == rank) {
          sums.encode_seconds += share * cost.encode_seconds_per_value * count;
          sums.decode_seconds += (others + 1) * share * cost.decode_seconds_per_value * count;
        }
      }
      parts.encode_seconds += layout.encode_seconds(*stream, stream->spec().count());
      means.decode_seconds += layout.decode_seconds(*stream, stream->spec().count());
    }
    for (size_t owner = 0; owner < n; ++owner)
      if (owner != rank) parts.sent += message[owner];
    parts.received = others * message[rank];
    sums.sent = parts.received;
    sums.received = parts.sent;
    to.moves.push_back(
        {.bucket = section.places[bucket], .after = Move::kAtOnce, .legs = {parts, sums, means}});
  }
}

}  // namespace thinwire
