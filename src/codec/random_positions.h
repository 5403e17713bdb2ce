// RandomPositions: a random set of positions that two sides draw alike from eight bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace thinwire {

// Buffers grow to what was needed once and are kept: count / 8 bytes, and 4 per position. The last
// set is kept as well: ranks that share a key cost one draw. One thread at a time.
class RandomPositions {
 public:
  // `kept` different positions below `count`, ascending; every set of them is as likely as every
  // other. A pure function of the arguments (docs/wire-format.md says which). Good until the next
  // call. REQUIRES: kept <= count < 2^32.
  std::span<const uint32_t> draw(uint64_t key, size_t count, size_t kept);

 private:
  void mark(uint64_t key, uint32_t count, size_t marks);
  void take_marked();
  void take_unmarked(size_t count);

  uint64_t key_ = 0;  // of the last set
  size_t count_ = 0;
  size_t kept_ = 0;
  // All zero between draws.
  std::vector<uint64_t> marked_;   // a bit per position
  std::vector<uint64_t> touched_;  // a bit per word of `marked_` that is not zero
  std::vector<uint32_t> positions_;
};

}  // namespace thinwire
