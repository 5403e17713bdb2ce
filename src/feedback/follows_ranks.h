// FollowsRanks: state that depends on how many ranks there are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "thinwire/state.h"

namespace thinwire {

// For objects of a store that treat a change of ranks otherwise than by multiplying what they owe
// to the mean.
class FollowsRanks {
 public:
  virtual ~FollowsRanks() = default;

  // Between two steps: one rank of `before` goes on as one of `now`. The members may be others even
  // if the numbers are the same.
  virtual void follow_ranks(size_t before, size_t now) = 0;
};

// Calls it, or multiplies what the object owes to the mean by now / before. Nothing is multiplied
// if `before` is 0, of a rank that is new.
void follow_ranks(Stateful& object, size_t before, size_t now);

}  // namespace thinwire
