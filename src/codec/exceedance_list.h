// The values above a threshold with their positions, in ascending order of position.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernel/select.h"
#include "kernel/tail_moments.h"

namespace thinwire {

// Buffers grow to what was needed once and are kept.
class ExceedanceList {
 public:
  size_t size() const noexcept { return size_; }
  std::span<const uint32_t> positions() const noexcept { return {positions_.data(), size_}; }
  std::span<const float> values() const noexcept { return {values_.data(), size_}; }
  std::span<float> values() noexcept { return {values_.data(), size_}; }

  // From the next call on takes values of this sign only. (Lists with a tail take both.)
  void only(kernel::Side side) noexcept { side_ = side; }

  // All of `values` with |x| > threshold, or false if there are more than `limit`.
  bool collect(std::span<const float> values, float threshold, size_t limit);

  // The same, and in the same read of memory the sums of the tail above another threshold.
  bool collect(std::span<const float> values, float threshold, size_t limit, float tail_threshold,
               float largest, kernel::TailMoments& tail);

  // The same, and in the same read of memory kernel::value_sum, which is complete in any case.
  bool collect(std::span<const float> values, float threshold, size_t limit, double& sum);

  // Those of `values` with |x| > threshold, but only the `most` largest magnitudes, of equal ones
  // those with the lowest positions: exactly, in one read of memory. A non-empty `rest` receives
  // `values` with zeros where the list holds them; it may be `values` itself. REQUIRES: 0 < most.
  void select(std::span<const float> values, float threshold, size_t most, std::span<float> rest);

  // A non-empty `rest` receives `values`, of which this is a list, as select leaves it.
  void leave(std::span<const float> values, std::span<float> rest) const;

  // Drops what is not above `threshold`.
  void compact(float threshold) noexcept;

  // Drops all but the `most` largest, as select does; what is dropped goes back to `rest`, if there
  // is one. Returns the least magnitude left. REQUIRES: 0 < most; not empty.
  float keep_largest(size_t most, std::span<float> rest);

 private:
  // Goes on from `begin`; false once there are too many.
  bool extend(std::span<const float> values, size_t begin, float threshold, size_t limit);
  // Makes the buffers larger, but not beyond `limit`; false if they are as large already.
  bool grow(size_t limit);

  std::vector<uint32_t> positions_;
  std::vector<float> values_;
  size_t size_ = 0;
  kernel::Side side_ = kernel::Side::kBoth;
};

}  // namespace thinwire
