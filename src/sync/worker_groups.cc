// Who belongs where, and the way of one vector to everybody.
// SPDX-License-Identifier: Apache-2.0
#include "sync/worker_groups.h"

#include <algorithm>

namespace thinwire {

WorkerGroups::WorkerGroups(Group& whole, int colour)
    : group_of_(static_cast<size_t>(whole.size())) {
  std::vector<int> colours(group_of_.size());
  whole.all_gather(std::as_bytes(std::span(&colour, 1)), std::as_writable_bytes(std::span(colours)));
  std::vector<int> known;  // colours in order of appearance
  for (size_t r = 0; r < colours.size(); ++r) {
    const auto found = std::find(known.begin(), known.end(), colours[r]);
    const auto group = static_cast<size_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(colours[r]);
      members_.emplace_back();
    }
    group_of_[r] = static_cast<int>(group);
    members_[group].push_back(static_cast<int>(r));
  }
  index_ = group_of(whole.rank());
  own_ = whole.split(index_);
  heads_ = whole.split(own_->rank() == 0 ? 0 : 1);
}

int WorkerGroups::rank_in_group(int rank) const {
  const std::span<const int> ranks = members(group_of(rank));
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

std::vector<Hop> WorkerGroups::route_in_group(int owner) {
  return {{.group = own_.get(), .root = rank_in_group(owner)}};
}

std::vector<Hop> WorkerGroups::route_to_all(int owner) {
  const int from = group_of(owner);
  std::vector<Hop> route;
  if (index_ == from) route = route_in_group(owner);
  if (own_->rank() == 0) route.push_back({.group = heads_.get(), .root = from});
  if (index_ != from) route.push_back({.group = own_.get(), .root = 0});
  return route;
}

}  // namespace thinwire
