// Moves of low-rank and shared-index, and of codecs that settle a scale: rounds of small messages.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/wire/round_plan.h"
#include "plan/moves.h"
#include "thinwire/frame.h"

namespace thinwire {
namespace {

// As FloatReduction sends them: parts to the owners of ranges, and their ranges of the result to
// all.
void add_reduction(size_t floats, size_t n, size_t rank, double encode_seconds,
                   std::vector<Leg>& to) {
  const auto frame = [&](size_t owner) {
    const size_t count = floats * (owner + 1) / n - floats * owner / n;
    return count == 0 ? 0.0 : static_cast<double>(kFrameHeaderSize + count * sizeof(float));
  };
  Leg parts{.encode_seconds = encode_seconds};
  for (size_t owner = 0; owner < n; ++owner)
    if (owner != rank) parts.sent += frame(owner);
  parts.received = static_cast<double>(n - 1) * frame(rank);
  to.push_back(parts);
  to.push_back({.sent = parts.received, .received = parts.sent});
}

// The root's message to each other rank, with its length.
void add_root(const RoundPlan& round, size_t n, bool is_root, double encode_seconds,
              std::vector<Leg>& to) {
  const auto message = static_cast<double>(sizeof(uint64_t) + round.size);
  Leg leg{.encode_seconds = encode_seconds, .from_root = is_root};
  (is_root ? leg.sent : leg.received) = message * (is_root ? static_cast<double>(n - 1) : 1);
  to.push_back(leg);
}

}  // namespace

std::vector<Leg> round_legs(const StepLayout& layout, const std::vector<ActiveStream*>& streams,
                            bool with_plain, size_t rank, uint64_t step, double encode_seconds,
                            bool& exact) {
  const size_t n = layout.ranks();
  const std::vector<RoundPlan> rounds = plan_rounds(streams, with_plain, step % 2 == 1);
  const double share = rounds.empty() ? 0 : encode_seconds / static_cast<double>(rounds.size());
  std::vector<Leg> legs;
  for (const RoundPlan& round : rounds) {
    if (round.combine == Round::Combine::kFromRoot) {
      add_root(round, n, root_of(step, n) == rank, share, legs);
      exact = false;  // an offer may be shorter
    } else {
      add_reduction(round.size / sizeof(float), n, rank, share, legs);
    }
  }
  return legs;
}

// What is offered in the first round is encoded bucket by bucket; the message waits for the last.
void add_agreed(const StepLayout& layout, const LaidSection& section, size_t rank, uint64_t step,
                Moves& to) {
  size_t begin = 0;
  for (const size_t end :
       cargo_ends(layout.streams(), section.buckets, layout.options().bucket_bytes)) {
    std::vector<ActiveStream*> members;
    double last = 0, decode = 0;
    for (size_t bucket = begin; bucket < end; ++bucket) {
      double encode = 0;
      for (const Piece& piece : section.buckets[bucket]) {
        ActiveStream& stream = *layout.streams()[piece.stream];
        members.push_back(&stream);
        encode += layout.encode_seconds(stream, stream.spec().count());
        decode += layout.decode_seconds(stream, stream.spec().count());
      }
      last += encode / 2;  // the later half, when all offers are there
      to.moves.push_back({.bucket = section.places[bucket],
                          .after = {},
                          .legs = {{.encode_seconds = encode / 2}}});
    }
    Move cargo{.bucket = section.places[end - 1], .after = {}, .legs = {}};
    cargo.legs = round_legs(layout, members, true, rank, step, last, to.exact);
    cargo.legs.push_back({.decode_seconds = decode});
    to.moves.push_back(std::move(cargo));
    begin = end;
  }
}

}  // namespace thinwire
