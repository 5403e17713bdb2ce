// for_other_ranks(): visits all other ranks of a group in an order that spreads the load.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "thinwire/group.h"

namespace thinwire {

// Calls body(rank) for every other rank of `group`, beginning with the next one: each rank starts
// with another peer.
template <typename Body>
void for_other_ranks(const Group& group, const Body& body) {
  const auto n = static_cast<size_t>(group.size()), own = static_cast<size_t>(group.rank());
  for (size_t hop = 1; hop < n; ++hop) body((own + hop) % n);
}

}  // namespace thinwire
