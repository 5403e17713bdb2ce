// Saved state as bytes, from one rank to another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/state.h"
#include "thinwire/status.h"

namespace thinwire {

std::vector<std::byte> pack_state(const StateArrays& arrays);

// Fails with kCorrupt if the bytes are no state, or not as they were packed.
Result<StateArrays> unpack_state(std::span<const std::byte> bytes);

// From `from` to all other ranks, which pass nothing and get it. All ranks call it.
StateArrays broadcast_state(Group& group, const StateArrays& mine, int from);

}  // namespace thinwire
