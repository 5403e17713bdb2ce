// LeaderRound: the messages of a round of Leader SGD, by who leads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "plan/round_trace.h"

namespace thinwire {

struct LeaderRound {
  std::vector<int> colours;      // by rank: its group
  bool global = true;            // a leader of all, too
  bool local = true;             // groups have leaders of their own
  double frame_bytes = 0;        // of a leader's weights
  bool announced = false;        // the size of a frame goes before it
  std::vector<int> own_leaders;  // by group, in the order of its first rank
  int leader = 0;                // of all, in a global round
};

// The frames that each rank sends and receives, by the routes and collectives that workers use.
std::vector<RankTrace> trace_leader_round(const LeaderRound& round);

// What a rank sends besides, in a circle of so many that talk: its loss to all, and words of
// agreement.
struct LeaderWords {
  double bytes = 0;
  int messages = 0;  // one after another, those of losses counted as one
};
LeaderWords leader_words(int circle);

}  // namespace thinwire
