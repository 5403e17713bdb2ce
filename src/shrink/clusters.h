// Clusters: values as numbers of the clusters that they belong to [Inshrinkerator, SoCC 2024].
//
// How much a value matters is its magnitude. The smallest values are pruned, the largest are kept
// as they are, and the rest is divided into 2^bits clusters, each of which stands for the mean of
// its members (Lloyd's algorithm in one dimension). Clusters are numbered by value, so that a value
// that moves a little moves to the next number:
//
//   0                        kept, negative
//   1 ... h                  negative clusters by rising centre, h = 2^bits / 2
//   h + 1                    pruned: zero
//   h + 2 ... 2h + 1         positive clusters by rising centre
//   2h + 2                   kept, positive
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {

// What becomes of the values of one group.
struct Treatment {
  int bits = 0;      // of cluster numbers, 1 to kMostClusterBits; 0: all values stay as they are
  double prune = 0;  // share of the values, the smallest, that become zero
  double keep = 0;   // share of the values, the largest, that stay as they are
};

inline constexpr int kMostClusterBits = 8;

struct Clusters {
  std::vector<float> centres;     // h negative ones, then h positive ones
  std::vector<uint16_t> numbers;  // one for each value
  std::vector<float> kept;        // those with the first and the last number, in their order

  // How many numbers there are.
  uint32_t count() const noexcept { return static_cast<uint32_t>(centres.size()) + 3; }
  bool operator==(const Clusters&) const = default;
};

// Whether a number is of values that are kept.
inline bool is_kept(uint32_t number, uint32_t count) noexcept {
  return number == 0 || number + 1 == count;
}

// Divides the values. Where `before`, the centres of an earlier call, are as many, the centres
// start from there. Same arguments give the same clusters on every machine. Centres are fitted to
// 262,144 values at most, taken at equal distances. REQUIRES: finite values; 1 <= bits <=
// kMostClusterBits.
Clusters make_clusters(std::span<const float> values, const Treatment& treatment,
                       std::span<const float> before = {});

// Writes what clusters stand for. Fails with kCorrupt where a number is none of theirs, or `kept`
// has another length. REQUIRES: as many values as numbers.
Status read_clusters(const Clusters& clusters, std::span<float> values);

}  // namespace thinwire
