// Finds the values whose magnitude passes a threshold, which every sparsifier needs in each step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace thinwire::kernel {

// Magnitudes are compared as bit patterns: the same on every machine whatever its treatment of
// denormals, and a NaN passes every threshold. Thresholds are >= 0 and not NaN.

// How many values have |x| > threshold.
size_t count_above(std::span<const float> values, float threshold) noexcept;

struct Selection {
  size_t kept = 0;  // entries written
  size_t next = 0;  // where to go on: values.size(), unless the buffers filled up before
};

// Writes the positions in `values` of those at or after `begin` with |x| > threshold, ascending,
// and the values themselves to `kept`, until positions.size() of them are found or the values end.
// To go on after full buffers, call again with begin = next.
//
// A non-empty `rest` receives values[begin .. next) with zeros where something was kept, in the
// same pass. It may be `values` itself: then only cache lines that hold a kept value are written.
// REQUIRES: begin <= values.size() <= 2^32; kept is empty or as long as positions; rest is empty or
// as long as values, and is `values` or does not overlap it.
Selection select_above(std::span<const float> values, size_t begin, float threshold,
                       std::span<uint32_t> positions, std::span<float> kept,
                       std::span<float> rest = {}) noexcept;

// The same, for values of one sign only.
enum class Side : uint8_t { kBoth, kPositive, kNegative };
Selection select_side(std::span<const float> values, size_t begin, float threshold, Side side,
                      std::span<uint32_t> positions, std::span<float> kept,
                      std::span<float> rest = {}) noexcept;

// select_above with |x| >= threshold.
Selection select_at_least(std::span<const float> values, size_t begin, float threshold,
                          std::span<uint32_t> positions, std::span<float> kept,
                          std::span<float> rest = {}) noexcept;

}  // namespace thinwire::kernel
