// Runs a test's body on every rank, whatever the ranks are: threads, or processes under mpirun.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "thinwire/group.h"

namespace thinwire {

// The numbers of ranks that on_ranks can be asked for: 1 to 9 threads, or the size of mpirun's world.
std::vector<int> rank_counts();

// Those of them that leave a majority if one rank is faulty.
inline std::vector<int> three_ranks_and_more() {
  std::vector<int> counts = rank_counts();
  std::erase_if(counts, [](int count) { return count < 3; });
  return counts;
}

// Calls `body` on each of `count` ranks with a group of its own, whose deadline is 20 s. Throws what
// the body throws.
void on_ranks(int count, const std::function<void(Group&)>& body);

}  // namespace thinwire
