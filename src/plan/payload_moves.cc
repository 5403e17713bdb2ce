// Moves of gather: each rank encodes whole streams, and sends them to all others.
// SPDX-License-Identifier: Apache-2.0
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
    Move move{.bucket = section.places[bucket], .after = {}, .legs = {}};
    if (settles_scale) move.legs = round_legs(layout, members, false, rank, step, 0, to.exact);
    move.legs.push_back({.encode_seconds = encode,
                         .decode_seconds = 0,
                         .sent = (n - 1) * message,
                         .received = (n - 1) * message});
    move.legs.push_back({.encode_seconds = 0, .decode_seconds = decode});
    to.moves.push_back(std::move(move));
  }
}

}  // namespace thinwire
