// MemberGroup: some ranks of a group as a group, made without messages from a common list.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "thinwire/group.h"

namespace thinwire {

// Lets workers abandon a round in which one of them is lost, and hold the next one. Backends do not
// take back every message that is under way, and what was sent may still arrive: so messages of a
// round travel in memory of their own, which is kept for those that nobody waits for any more, and
// begin with the number of their round, by which a straggler is told from what is waited for.
class Salvage {
 public:
  // `heard` says whether one of these ranks is known to be lost; waits of rounds ask it.
  explicit Salvage(std::function<bool(std::span<const int>)> heard) : heard_(std::move(heard)) {}

  bool heard(std::span<const int> ranks) const { return heard_ && heard_(ranks); }

  // A transfer that nobody waits for any more.
  struct Kept {
    std::vector<std::byte> bytes;        // that it is about
    std::unique_ptr<Transfer> transfer;  // ends before them
    int peer;
    bool is_send;
    uint64_t round;
  };
  void keep(Kept kept);
  // Lets those go that have ended, and receives that could take what comes in `round` or later.
  void sweep(uint64_t round);

 private:
  std::function<bool(std::span<const int>)> heard_;
  std::vector<Kept> kept_;
};

// Messages are those of the group underneath, under tags of its own for each of `kRounds` rounds:
// what a round that failed left on its way is no part of the next. Members that talk in several of
// these groups do so in the same order.
class MemberGroup final : public Group {
 public:
  // Member i is rank members[i] underneath. Rounds count from 1; 0 is for talk outside of them.
  // With `salvage` a wait fails with Error(kPeerLost) when a member is known to be lost, and the
  // group underneath stays usable; every message is 8 bytes longer. REQUIRES: members ascend and
  // hold this rank; `whole` and `salvage` outlive it.
  MemberGroup(Group& whole, std::vector<int> members, uint64_t round, Salvage* salvage = nullptr);

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
  class Salvaged;
  int tag_of(int tag) const;

  Group& whole_;
  const std::vector<int> members_;
  const uint64_t round_;
  Salvage* const salvage_;
  int rank_ = -1;
};

}  // namespace thinwire
