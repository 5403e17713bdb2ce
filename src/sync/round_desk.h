// RoundDesk: decides when asynchronous workers have a round, and which of them take part.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace thinwire {

// What the desk tells a worker.
struct DeskNote {
  enum class Kind : uint8_t {
    kCalled,   // round `round` is on: come after the next step
    kMembers,  // it is held now, by those of `members`
    kClosed,   // it was held without you
    kFailed,   // those of `members` did not come in time
    kLost,     // those of `members` are lost; a round that they came to may not end
    kEnd,      // those of `members` have left; nobody else is there
    kAlive,    // to one that has left: others go on
  };

  Kind kind = Kind::kCalled;
  int to = 0;
  uint64_t round = 0;
  std::vector<bool> members = {};  // by rank
};

// Rounds are numbered from 1. Round k is called when all live workers together took k x live x
// period steps (a worker that leaves counts for the rounds before), unless the one before is still
// open; it is closed when all live workers have come, or, with a patience, when that has passed
// since the call and one of them has come. Messages and threads are somebody else's.
class RoundDesk {
 public:
  using Clock = std::chrono::steady_clock;

  // Without a patience (0) workers that do not come within `deadline` are an error.
  RoundDesk(int ranks, uint64_t period, std::chrono::milliseconds patience,
            std::chrono::milliseconds deadline);

  // Each returns what is to be told, in order.
  std::vector<DeskNote> on_step(int rank, Clock::time_point now);
  std::vector<DeskNote> on_arrival(int rank, uint64_t round, Clock::time_point now);
  std::vector<DeskNote> on_leave(int rank, Clock::time_point now);
  std::vector<DeskNote> on_time(Clock::time_point now);

  int live() const noexcept;

 private:
  void open_if_due(Clock::time_point now, std::vector<DeskNote>& notes);
  void close(DeskNote::Kind kind, Clock::time_point now, std::vector<DeskNote>& notes);
  bool all_came() const noexcept;

  const uint64_t period_;
  const std::chrono::milliseconds patience_;
  const std::chrono::milliseconds deadline_;
  std::vector<bool> live_;
  std::vector<bool> came_;  // to the open round
  bool open_ = false;
  uint64_t round_ = 0;  // the latest that was called
  uint64_t steps_ = 0;  // of all
  uint64_t next_;       // steps at which the next round is due
  Clock::time_point called_at_;
};

}  // namespace thinwire
