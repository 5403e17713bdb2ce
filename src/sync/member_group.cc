// Ranks and tags translated; everything else is the group's underneath.
// SPDX-License-Identifier: Apache-2.0
#include "sync/member_group.h"

#include <algorithm>

#include "core/check.h"

namespace thinwire {
namespace {

constexpr int kFirstOwn = 100;       // tags below are the caller's
constexpr uint64_t kRounds = 1000;   // that messages can be told apart for
constexpr int kCollectives = 30000;  // where the tags of a group's own collectives begin
constexpr int kCollectiveTags = 8;   // as many as there can be of them

}  // namespace

MemberGroup::MemberGroup(Group& whole, std::vector<int> members, uint64_t round)
    : whole_(whole), members_(std::move(members)), round_(round) {
  const auto mine = std::find(members_.begin(), members_.end(), whole.rank());
  THINWIRE_CHECK(mine != members_.end() && std::is_sorted(members_.begin(), members_.end()),
                 "member group: ranks that do not ascend, or not this one");
  THINWIRE_CHECK(members_.front() >= 0 && members_.back() < whole.size(),
                 "member group: no rank " + std::to_string(members_.back()));
  rank_ = static_cast<int>(mine - members_.begin());
  set_deadline(whole.deadline());
}

int MemberGroup::tag_of(int tag) const {
  THINWIRE_CHECK(kCollectives <= tag && tag < kCollectives + kCollectiveTags,
                 "member group: for collectives only");
  return kFirstOwn + static_cast<int>(round_ % kRounds) * kCollectiveTags + tag - kCollectives;
}

std::unique_ptr<Transfer> MemberGroup::send(std::span<const std::byte> buffer, int to, int tag) {
  count_sent(buffer.size());
  return whole_.send(buffer, members_[static_cast<size_t>(to)], tag_of(tag));
}

std::unique_ptr<Transfer> MemberGroup::receive(std::span<std::byte> buffer, int from, int tag) {
  count_received(buffer.size());
  return whole_.receive(buffer, members_[static_cast<size_t>(from)], tag_of(tag));
}

std::unique_ptr<Group> MemberGroup::split(int /*colour*/) {
  throw Error(ErrorCode::kUnsupported, "member group: cannot be split");
}

void MemberGroup::library_all_reduce(std::span<float> /*values*/) {
  throw Error(ErrorCode::kUnsupported, "member group: no library's sum");
}

}  // namespace thinwire
