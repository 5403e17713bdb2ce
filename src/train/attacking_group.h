// AttackingGroup: the group of a worker that attacks by what it does to its messages, whatever its
// gradients are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "thinwire/group.h"

namespace thinwire {

enum class MessageAttack : uint8_t {
  kSilence,       // values are not sent; everything else is
  kEquivocation,  // ranks of odd numbers are sent other values, with a good checksum
};

// Passes on what the exchange sends to `group`, which outlives it, changed so; groups split from it
// do the same.
std::unique_ptr<Group> make_attacking_group(MessageAttack attack, Group& group);

}  // namespace thinwire
