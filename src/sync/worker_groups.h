// WorkerGroups: the groups of Leader SGD: each rank's own, and the one of their heads, which
// carries weights from group to group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sync/member_group.h"
#include "sync/weight_broadcast.h"
#include "thinwire/group.h"

namespace thinwire {

// Colours by rank. Ranks 0 to n-1 in `count` groups of neighbours, as equal as they can be; or in
// one group for each host, `host` being this rank's (collective).
std::vector<int> neighbour_colours(int ranks, int count);
std::vector<int> host_colours(Group& group, const std::string& host);

// Ranks of equal colour are a group; groups are numbered by their first rank. Ranks are those of
// the whole throughout.
struct GroupTable {
  GroupTable(std::span<const int> colours, std::vector<int> those);

  std::vector<int> ranks;                 // whoever is in
  std::vector<std::vector<int>> members;  // by group
  std::vector<int> heads;                 // by group: its first rank
  std::vector<int> group_of;              // by rank; -1: is not in
};

// The groups of one rank, and the routes through them.
class WorkerGroups {
 public:
  // All ranks, in groups split from the whole. Collective.
  WorkerGroups(Group& whole, std::span<const int> colours);

  // Those of `ranks` only, which hold this one, without a word between them; for round `round`.
  // With `salvage`, which outlives it, they may abandon the round.
  WorkerGroups(Group& whole, std::span<const int> colours, const std::vector<int>& ranks,
               uint64_t round, Salvage* salvage);
  // The same with a table that several of them share.
  WorkerGroups(Group& whole, std::shared_ptr<const GroupTable> table, uint64_t round,
               Salvage* salvage);

  int count() const noexcept { return static_cast<int>(table_->members.size()); }
  int index() const noexcept { return index_; }  // of this rank's group
  // Whoever is in: member i is rank i of all(), and of own() for its group.
  std::span<const int> ranks() const noexcept { return table_->ranks; }
  std::span<const int> members(int group) const {
    return table_->members[static_cast<size_t>(group)];
  }
  Group& all() noexcept { return *all_; }
  Group& own() noexcept { return *own_; }

  // The hops of this rank when `owner` sends something to its own group, or to all. To all it goes
  // first through the owner's group, then to the heads (the first ranks) of the others, then
  // through their groups: each rank but the owner receives it once, and a group's border is crossed
  // once.
  std::vector<Hop> route_in_group(int owner);
  std::vector<Hop> route_to_all(int owner);

  uint64_t bytes_sent() const noexcept;
  uint64_t bytes_received() const noexcept;
  uint64_t bytes_between() const noexcept;  // sent from head to head

 private:
  int group_of(int rank) const { return table_->group_of[static_cast<size_t>(rank)]; }
  int rank_in_group(int rank) const;

  std::shared_ptr<const GroupTable> table_;
  int index_ = 0;
  Group* all_;
  std::unique_ptr<Group> own_all_;  // unless it is the whole
  std::unique_ptr<Group> own_;
  std::unique_ptr<Group> heads_;  // of a rank that is none: null, or one without use
};

}  // namespace thinwire
