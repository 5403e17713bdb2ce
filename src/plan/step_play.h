// play_step(): simulates one rank's step: one communication thread and its links beside the
// computation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "plan/moves.h"
#include "thinwire/step_plan.h"

namespace thinwire {

struct Played {
  double seconds = 0;  // until the exchange and the backward pass have ended
  double encode_seconds = 0;
  double decode_seconds = 0;
  double wire_seconds = 0;  // in which a link sends or receives
};

// What messages travel over.
struct PlayLinks {
  LinkSpec between;         // this rank's part of it
  LinkSpec inside;          // what is of Level::kInside
  double inside_share = 0;  // of the other messages, those that stay inside nevertheless
};

// When each bucket of the plan, and all buckets before it, are complete.
std::vector<double> bucket_times(const Plan& plan, const StepTimeline& timeline);

// The exchange's thread does one piece of work at a time: first what an owner makes of parts, then
// parts, then what others made, and of these what was there first. A link carries messages in the
// order in which they were written, those to all ranks at the full rate together. Without a core of
// its own the thread's work delays the backward pass, and not the other way round.
Played play_step(const std::vector<Move>& moves, const std::vector<double>& bucket_times,
                 double backward_seconds, const PlayLinks& links, bool own_core);

}  // namespace thinwire
