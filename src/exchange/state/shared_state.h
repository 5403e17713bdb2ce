// require_shared_alike(): compares, by checksums, the state that must be equal on all ranks
// (estimates of ef21, factors of powersgd).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/state.h"

namespace thinwire {

// The checksum of an array by its name in a store.
struct SharedSum {
  std::string name;
  uint64_t sum = 0;
};

// Adds those of the object under `key`: as many on a rank that shares nothing yet as on one that does.
void add_shared_sums(const std::string& key, const Stateful& object, std::vector<SharedSum>& sums);

// Throws AgreedError(kMismatch) naming an array and the rank whose one is not what most ranks have:
// one rank alone loaded a state, or one of another step, or a damaged one. All ranks call it, with
// the same names; without names no message is sent. Errors call rank r of the group
// first + r x stride.
void require_shared_alike(Group& group, const std::vector<SharedSum>& sums, size_t first = 0,
                          size_t stride = 1);

}  // namespace thinwire
