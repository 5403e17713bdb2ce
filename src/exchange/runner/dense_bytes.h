// The bytes with which reports compare what an exchange sent: StepReport::dense_bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "thinwire/exchange.h"

namespace thinwire {

// Returns how many bytes a dense fp32 exchange sends per rank: 2 (n-1)/n x 4 bytes per value, or
// half of that where results are shards.
inline uint64_t dense_fp32_bytes(size_t values, size_t ranks, Results results) noexcept {
  const size_t ways = results == Results::kShard ? 1 : 2;
  return ways * (ranks - 1) * sizeof(float) * values / ranks;
}

}  // namespace thinwire
