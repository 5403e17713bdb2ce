// Gathers what members say, and finds the one that has gone furthest.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/members/roll_call.h"

#include <span>

namespace thinwire {

RollCall::RollCall(Group& group, const Member& mine) : members_(static_cast<size_t>(group.size())) {
  static_assert(sizeof(Member) == 40);  // no gaps, whose bytes would be nobody's
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(members_)));
  witness_ = members_.size();
  const auto is_new = [this](size_t i) { return members_[i].size == 0; };
  const auto better = [&](size_t i, size_t than) {
    const Member &one = members_[i], &other = members_[than];
    if (is_new(i) || is_new(than)) return is_new(than) && !is_new(i);
    if (one.lacks != other.lacks) return one.lacks < other.lacks;
    return one.step > other.step;
  };
  for (size_t i = 0; i < members_.size(); ++i) {
    if (better(i, source_)) source_ = i;
    if (!is_new(i) && (witness_ == members_.size() || members_[i].epoch > members_[witness_].epoch))
      witness_ = i;
  }
}

bool RollCall::counted_elsewhere(size_t member) const noexcept {
  const Member& one = members_[member];
  return one.size > 0 && one.voted != 0 && one.step + 1 == furthest().step &&
         one.epoch == furthest().epoch;
}

bool RollCall::is_behind(size_t member) const noexcept {
  const Member& one = members_[member];
  if (furthest().size == 0) return false;  // all are new
  return one.size == 0 || one.lacks != 0 ||
         (one.step != furthest().step && !counted_elsewhere(member));
}

std::vector<int> RollCall::absent() const {
  if (witness_ == members_.size()) return {};
  const Member& last = members_[witness_];
  std::vector<bool> here(static_cast<size_t>(last.size));
  for (const Member& one : members_)
    if (one.size > 0 && one.epoch == last.epoch && one.rank >= 0 && one.rank < last.size)
      here[static_cast<size_t>(one.rank)] = true;
  std::vector<int> gone;
  for (size_t rank = 0; rank < here.size(); ++rank)
    if (!here[rank]) gone.push_back(static_cast<int>(rank));
  return gone;
}

}  // namespace thinwire
