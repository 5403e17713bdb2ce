// The groups of leader SGD: each rank's own, and the one of their heads, which carries what goes from
// group to group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sync/weight_broadcast.h"
#include "thinwire/group.h"

namespace thinwire {

class WorkerGroups {
 public:
  // Ranks of equal colour are a group; groups are numbered by their first rank. Collective.
  WorkerGroups(Group& whole, int colour);

  // Ranks 0 to n-1 in `count` groups of neighbours, as equal as they can be.
  static int neighbours(int rank, int ranks, int count) {
    return static_cast<int>(int64_t{rank} * count / ranks);
  }

  int count() const noexcept { return static_cast<int>(members_.size()); }
  int index() const noexcept { return index_; }  // of this rank's group
  int group_of(int rank) const noexcept { return group_of_[static_cast<size_t>(rank)]; }
  // Ranks of the whole, in order: member i is rank i of own().
  std::span<const int> members(int group) const { return members_[static_cast<size_t>(group)]; }
  Group& own() noexcept { return *own_; }

  // The hops of this rank when rank `owner` of the whole sends something to its own group, or to all.
  // To all it goes first through the owner's group, then to the heads (the first ranks) of the
  // others, then through their groups: each rank but the owner receives it once, and a group's
  // border is crossed once.
  std::vector<Hop> route_in_group(int owner);
  std::vector<Hop> route_to_all(int owner);

  // Of own groups and heads, without the whole.
  uint64_t bytes_sent() const noexcept { return own_->bytes_sent() + heads_->bytes_sent(); }
  uint64_t bytes_received() const noexcept {
    return own_->bytes_received() + heads_->bytes_received();
  }

 private:
  int rank_in_group(int rank) const;

  std::vector<int> group_of_;
  std::vector<std::vector<int>> members_;
  int index_ = 0;
  std::unique_ptr<Group> own_;
  std::unique_ptr<Group> heads_;  // of a rank that is none: one without use
};

}  // namespace thinwire
