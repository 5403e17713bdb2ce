// Finds exactly the k largest magnitudes of a vector, in little more than one pass over it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace thinwire::kernel {

// Scratch (the one kernel that allocates) for vectors of one length, allocated once: about 12 bytes
// per kept value, never more than 4 bytes per value in all. One thread at a time.
class TopSelector {
 public:
  // REQUIRES: kept <= count < 2^32.
  TopSelector(size_t count, size_t kept);

  // From now on as if made so; scratch only grows.
  void aim(size_t count, size_t kept);

  size_t held_bytes() const noexcept;  // of its scratch

  // Ascending positions of the `kept` largest magnitudes, equal ones from the lowest position up.
  // Fewer when fewer are not zero. Good until the next call.
  // REQUIRES: `count` values, finite.
  std::span<const uint32_t> select(std::span<const float> values);

 private:
  float sampled_bound(std::span<const float> values);
  std::span<const uint32_t> pick_among(size_t candidates);
  std::span<const uint32_t> scan(std::span<const float> values);

  size_t count_ = 0;
  size_t kept_ = 0;
  size_t room_ = 0;         // candidates that are looked at at most
  size_t sample_rank_ = 0;  // the bracket is this one's magnitude in the sample; 0: no sample
  std::vector<float> sample_;
  std::vector<uint32_t> positions_;
  std::vector<float> candidates_;
};

}  // namespace thinwire::kernel
