// Gathers what members say, and finds the one that has gone furthest.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/members/roll_call.h"

#include <algorithm>
#include <span>

#include "core/bytes.h"

namespace thinwire {

RollCall::RollCall(Group& group, const Member& mine) : members_(static_cast<size_t>(group.size())) {
  static_assert(sizeof(Member) == 48);  // no gaps, whose bytes would be nobody's
  group.all_gather(byte_view(mine), std::as_writable_bytes(std::span(members_)));
  witness_ = members_.size();
  const auto is_new = [this](size_t i) { return members_[i].size == 0; };
  const auto better = [&](size_t i, size_t than) {
    const Member &one = members_[i], &other = members_[than];
    if (is_new(i) || is_new(than)) return is_new(than) && !is_new(i);
    if (one.waits_for_first_step != other.waits_for_first_step)
      return one.waits_for_first_step < other.waits_for_first_step;
    return one.step > other.step;
  };
  for (size_t i = 0; i < members_.size(); ++i) {
    if (better(i, source_)) source_ = i;
    if (!is_new(i) &&
        (witness_ == members_.size() || members_[i].generation > members_[witness_].generation))
      witness_ = i;
  }
}

bool RollCall::counted_elsewhere(size_t member) const noexcept {
  const Member& one = members_[member];
  return one.size > 0 && one.voted != 0 && one.step + 1 == furthest().step &&
         one.generation == furthest().generation;
}

bool RollCall::is_behind(size_t member) const noexcept {
  const Member& one = members_[member];
  if (furthest().size == 0) return false;  // all are new
  return one.size == 0 || one.waits_for_first_step != 0 ||
         (one.step != furthest().step && !counted_elsewhere(member));
}

bool RollCall::has(uint32_t generation, int rank, uint64_t store) const noexcept {
  return std::any_of(members_.begin(), members_.end(), [&](const Member& one) {
    return (one.size > 0 && one.generation == generation && one.rank == rank) ||
           (store != 0 && one.store == store);
  });
}

std::vector<int> RollCall::absent(std::span<const uint64_t> stores) const {
  std::vector<int> gone;
  if (witness_ == members_.size()) return gone;
  const Member& last = members_[witness_];
  for (int rank = 0; rank < last.size; ++rank)
    if (!has(last.generation, rank, stores[static_cast<size_t>(rank)])) gone.push_back(rank);
  return gone;
}

}  // namespace thinwire
