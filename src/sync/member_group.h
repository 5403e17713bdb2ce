// Some ranks of a group as a group, made without talking: all of them must come to the same list.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "thinwire/group.h"

namespace thinwire {

// Messages are those of the group underneath, under tags of its own for each of `kRounds` rounds: what
// a round that failed left on its way is no part of the next. Members that talk in several of these
// groups do so in the same order.
class MemberGroup final : public Group {
 public:
  // Member i is rank members[i] underneath. REQUIRES: members ascend and hold this rank; `whole`
  // outlives it.
  MemberGroup(Group& whole, std::vector<int> members, uint64_t round);

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(members_.size()); }
  std::span<const int> members() const noexcept { return members_; }

  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override;
  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override;
  void abort(std::string_view reason) noexcept override { whole_.abort(reason); }

  // Throw Error(kUnsupported): rounds need neither.
  std::unique_ptr<Group> split(int colour) override;
  void library_all_reduce(std::span<float> values) override;

 private:
  int tag_of(int tag) const;

  Group& whole_;
  const std::vector<int> members_;
  const uint64_t round_;
  int rank_ = -1;
};

}  // namespace thinwire
