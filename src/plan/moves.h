// Leg and Move: the coding work and the messages of a rank in a step, by method, for play_step().
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/step_layout.h"

namespace thinwire {

// Between groups of a hierarchy, or, without one, among all ranks; and inside a group.
enum class Level : uint8_t { kBetween, kInside };

// Work of the exchange's thread, then messages, then the wait for those of other ranks. All ranks
// are taken to do the same at the same time: what a rank waits for was sent when its own messages
// were.
struct Leg {
  double encode_seconds = 0;
  double decode_seconds = 0;
  double copy_seconds = 0;  // of what it sends, and of what the leg before received
  double sent = 0;          // bytes, to all other ranks together
  double received = 0;      // bytes, from all of them
  bool from_root = false;   // this rank alone sends; the others go on when the last of them has all
  Level level = Level::kBetween;
};

// A bucket, a chunk or a cargo of buckets on its way.
struct Move {
  size_t bucket = 0;          // begins when this bucket and those before it are complete,
  std::vector<size_t> after;  // and these moves of the same list have ended
  std::vector<Leg> legs;
};

struct Moves {
  std::vector<Move> moves;
  bool exact = true;  // bytes are those that the exchange counts
};

// Bytes that a rank sends at one level.
double sent_at(const Moves& moves, Level level) noexcept;

// Of `rank` in a step of number `step`, but for the agreement at its end.
Moves moves_of(const StepLayout& layout, size_t rank, uint64_t step);

// The root of rounds in a step, which sends more than others do.
inline size_t root_of(uint64_t step, size_t ranks) noexcept { return step % ranks; }

// Bytes that a rank sends for the agreement at the end of a step, each message of which is a
// SealedWord.
double agreement_bytes(size_t ranks) noexcept;

// The moves of one section, added to those that are there: dense, scatter-reduce and
// sparse-reduce by their owners, gather, and low-rank and shared-index by their rounds.
void add_owned(const StepLayout& layout, const LaidSection& section, size_t rank, Moves& to);
void add_gather(const StepLayout& layout, const LaidSection& section, size_t rank, uint64_t step,
                Moves& to);
void add_agreed(const StepLayout& layout, const LaidSection& section, size_t rank, uint64_t step,
                Moves& to);

// The legs of the rounds of some streams, the encoding of which is shared out among the rounds.
std::vector<Leg> round_legs(const StepLayout& layout, const std::vector<ActiveStream*>& streams,
                            bool with_plain, size_t rank, uint64_t step, double encode_seconds,
                            bool& exact);

}  // namespace thinwire
