// For tests: LSGD as in the paper's pseudo-code, all workers in one loop, in double.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "sync/testing/sync_testing.h"
#include "sync/worker_groups.h"

namespace thinwire::testing {

// Of ranks in groups of neighbours.
inline int group_of(int rank, int ranks, int groups) {
  return neighbour_colours(ranks, groups)[static_cast<size_t>(rank)];
}

struct LsgdOracle {
  int ranks, groups;
  uint64_t tau, tau_global;
  double pull, pull_global;
  size_t window;
  double prox = 0, prox_global = 0;
  Quadratic problem = {};
  double rate = 0.1f;

  std::vector<std::vector<double>> x =
      std::vector<std::vector<double>>(static_cast<size_t>(ranks), start_values<double>());
  std::vector<std::deque<double>> losses =
      std::vector<std::deque<double>>(static_cast<size_t>(ranks));
  uint64_t steps = 0;
  std::vector<int> leaders = {};  // of the last round, by group
  int leader = -1;
  // As they were in their last round, by group and of all; empty before the first.
  std::vector<std::vector<double>> last_local =
      std::vector<std::vector<double>>(static_cast<size_t>(groups));
  std::vector<double> last_global = {};

  double mean_loss(size_t rank) const {
    double sum = 0;
    for (const double loss : losses[rank]) sum += loss;
    return sum / static_cast<double>(losses[rank].size());
  }

  int best(const std::vector<int>& among) const {
    int found = among.front();
    for (const int r : among)
      if (mean_loss(static_cast<size_t>(r)) < mean_loss(static_cast<size_t>(found))) found = r;
    return found;
  }

  // Nowhere while z is not known.
  static void pull_to(const std::vector<double>& z, double strength, std::vector<double>& mine) {
    for (size_t i = 0; i < z.size(); ++i) mine[i] -= strength * (mine[i] - z[i]);
  }

  std::vector<double> pull_all(const std::vector<int>& who, int to, double strength) {
    const std::vector<double> z = x[static_cast<size_t>(to)];
    for (const int r : who) pull_to(z, strength, x[static_cast<size_t>(r)]);
    return z;
  }

  void step() {
    std::vector<std::vector<int>> members(static_cast<size_t>(groups));
    std::vector<int> all;
    for (int r = 0; r < ranks; ++r) {
      auto& mine = x[static_cast<size_t>(r)];
      std::vector<double> gradient(mine.size());
      auto& seen = losses[static_cast<size_t>(r)];
      seen.push_back(problem.loss<double>(mine, r, steps, gradient));
      if (seen.size() > window) seen.pop_front();
      for (size_t i = 0; i < mine.size(); ++i) mine[i] -= rate * gradient[i];
      const auto own = static_cast<size_t>(group_of(r, ranks, groups));
      pull_to(last_global, prox_global / static_cast<double>(tau_global), mine);
      pull_to(last_local[own], prox / static_cast<double>(tau), mine);
      members[static_cast<size_t>(group_of(r, ranks, groups))].push_back(r);
      all.push_back(r);
    }
    ++steps;
    const bool local = groups > 1 && tau != tau_global && steps % tau == 0;
    const bool global = steps % tau_global == 0;
    if (!local && !global) return;
    leaders.clear();
    for (const auto& group : members) leaders.push_back(best(group));
    leader = best(all);
    if (local)
      for (size_t g = 0; g < members.size(); ++g)
        last_local[g] = pull_all(members[g], leaders[g], pull);
    if (global) last_global = pull_all(all, leader, pull_global);
  }
};

}  // namespace thinwire::testing
