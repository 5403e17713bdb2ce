// Pace: when a worker enters a round, and with which others.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/synchroniser.h"

namespace thinwire {

// A round that this worker is to hold now.
struct RoundCall {
  uint64_t number = 0;     // from 1; the same for all who hold it
  std::vector<int> ranks;  // who they are, in order
};

class Pace {
 public:
  virtual ~Pace() = default;

  // After the worker's local step number `steps` (from 1).
  virtual std::optional<RoundCall> after_step(uint64_t steps) = 0;

  // As those of Synchroniser.
  virtual std::vector<int> leave() { return {}; }
  virtual bool fail(std::string_view /*why*/) { return false; }
  virtual std::vector<LostWorker> lost() { return {}; }

  // Whether one of these ranks is known to be lost. Makes progress, never blocks.
  virtual bool heard_lost(std::span<const int> /*ranks*/) { return false; }
};

// All ranks, after every `period` steps of each.
std::unique_ptr<Pace> make_steady_pace(uint64_t period, int ranks);

// As it was: for workers whose rounds were recorded.
std::unique_ptr<Pace> make_recorded_pace(const std::vector<RecordedRound>& rounds);

// When all workers together took `period` steps each on average; RoundDesk has the rules. Rank 0
// keeps the desk on a thread of its own. Takes a channel of its own from `group`; a worker waits
// for nobody but at a round. Throws Error(kTimeout) naming who did not come where there is no
// patience. A lost worker is one that left where there is patience, and an error otherwise. Throws
// SurvivedError on a worker that the others gave up.
std::unique_ptr<Pace> make_counted_pace(Group& group, uint64_t period,
                                        std::chrono::milliseconds patience);

}  // namespace thinwire
