// RollCall: what the members of a new group tell each other before they go on together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "thinwire/group.h"

namespace thinwire {

// One member. Those that are new leave out what they cannot know.
struct Member {
  uint64_t step = 0;          // the next one
  uint64_t verdict_word = 0;  // on which ranks agreed at the end of the step before
  uint64_t skipped = 0;       // steps in a row
  uint64_t store = 0;         // the identity of its memories, by which it is known in every group
  uint32_t generation = 0;    // the last one
  int32_t rank = -1;          // in that generation
  int32_t size = 0;           // of its group; 0: new
  // Whether its step failed after all that it has to send was encoded and all that it gets had
  // come.
  uint16_t voted = 0;
  // Whether it was to take over what others have, and no step has counted since.
  uint16_t waits_for_first_step = 0;
};

// What follows from what all members said; the same on all of them.
class RollCall {
 public:
  // All ranks of `group` call it.
  RollCall(Group& group, const Member& mine);

  const std::vector<Member>& members() const noexcept {
    return members_;
  }  // by rank of the new group

  // The first of those that have gone furthest: its step, verdict_word and skipped are those of
  // all. If all are new, rank 0.
  size_t source() const noexcept { return source_; }
  const Member& furthest() const noexcept { return members_[source_]; }

  // Whether a member's failed step counted on the source. Every rank had voted before any could end
  // the step.
  bool counted_elsewhere(size_t member) const noexcept;

  // Whether a member lacks steps that the source has, even once its failed step counts.
  bool is_behind(size_t member) const noexcept;

  // Whether the one that was `rank` in `generation` is a member, with the store of that identity; 0
  // if it is not known. Groups that failed may have come in between: some of their ranks may have
  // come into them, and this one not.
  bool has(uint32_t generation, int rank, uint64_t store) const noexcept;

  // Ranks of the last generation that any member was in which are no members. `stores` are the
  // identities there, by rank.
  std::vector<int> absent(std::span<const uint64_t> stores) const;

  // A member that was in that generation; members_.size() if all are new.
  size_t witness() const noexcept { return witness_; }

 private:
  std::vector<Member> members_;
  size_t source_ = 0;
  size_t witness_ = 0;
};

}  // namespace thinwire
