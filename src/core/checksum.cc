// The checksum XXH3, computed by the xxHash library.
// SPDX-License-Identifier: Apache-2.0
#include "core/checksum.h"

#include <xxhash.h>

#include <memory>

namespace thinwire {

uint64_t checksum(std::span<const std::byte> first, std::span<const std::byte> second) {
  if (second.empty()) return XXH3_64bits(first.data(), first.size());
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), first.data(), first.size());
  XXH3_64bits_update(state.get(), second.data(), second.size());
  return XXH3_64bits_digest(state.get());
}

}  // namespace thinwire
