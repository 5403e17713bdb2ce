// Saved state as bytes, from one rank to another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/state.h"
#include "thinwire/status.h"

namespace thinwire {

std::vector<std::byte> pack_state(const StateArrays& arrays);

// Fails with kCorrupt if the bytes are no state, or not as they were packed.
Result<StateArrays> unpack_state(std::span<const std::byte> bytes);

// More bytes than any memory and encoder have for tensors of so many values: the size that another
// rank announces is not trusted beyond it.
constexpr uint64_t state_limit(uint64_t values) noexcept {
  return (uint64_t{1} << 20) + 64 * values;
}

// Throws kCorrupt, naming the rank, if it announces more than `limit` bytes.
void check_state_size(uint64_t size, uint64_t limit, int rank);

// From `from` to all other ranks, which pass nothing and get it, packed. All ranks call it. Throws
// kCorrupt on a rank to which more than `limit` bytes are announced.
std::vector<std::byte> broadcast_state(Group& group, const StateArrays& mine, int from,
                                       uint64_t limit);

}  // namespace thinwire
