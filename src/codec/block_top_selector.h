// Finds the k largest magnitudes of every block of a vector, in little more than one pass over it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace thinwire {

// Scratch for vectors of one length, allocated once. One thread at a time.
class BlockTopSelector {
 public:
  // Blocks of `block` values, the last may be shorter; each keeps kept_target(density, its length).
  // REQUIRES: 1 <= block; count < 2^32.
  BlockTopSelector(size_t count, size_t block, double density);

  // What all blocks keep together, zeros aside.
  size_t kept() const noexcept { return positions_.size(); }

  // Ascending positions of the largest magnitudes of each block, equal ones from the lowest
  // position up, zeros never. Good until the next call. REQUIRES: `count` values, finite.
  std::span<const uint32_t> select(std::span<const float> values);

 private:
  // What may be among the largest of a block, and room for it.
  struct Candidates {
    explicit Candidates(size_t room) : positions(room), values(room) {}
    // Lists what is not zero and at least `least` in values[begin .. end).
    void find(std::span<const float> from, size_t begin, size_t end, float least);

    std::vector<uint32_t> positions;
    std::vector<float> values;
    size_t count = 0;
  };

  size_t target(size_t count) const noexcept;
  float take(std::span<const uint32_t> positions, std::span<const float> values, size_t most);

  size_t count_;
  size_t block_;
  double density_;
  Candidates group_;  // of some blocks
  Candidates again_;  // of a block whose share of these was too small
  std::vector<uint32_t> magnitudes_;
  std::vector<uint32_t> positions_;
  size_t kept_ = 0;  // of positions_
};

}  // namespace thinwire
