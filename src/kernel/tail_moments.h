// Sums over the part of a vector that lies above a threshold, without writing that part down.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel/select.h"

namespace thinwire::kernel {

// Values whose sums are folded before they meet those of others: the sums of a vector are those of
// its parts of this length, added in order.
inline constexpr size_t kTailChunk = 8192;

// Of the values with |x| > threshold; e = |x| - threshold rounded to float.
struct TailMoments {
  size_t count = 0;
  double sum = 0;         // of e
  double square_sum = 0;  // of e^2
  float smallest = 0;     // the least |x|, exactly; infinity when there is none

  friend bool operator==(const TailMoments&, const TailMoments&) = default;
};

// One read of memory. Sums run over fixed lanes, blocks and chunks of `values`: the same bits on
// every SIMD target, and scaled exactly when values, threshold and largest are by a power of two.
// The sums are good to 1e-7. REQUIRES: finite values, none with |x| > largest; 0 <= threshold,
// finite.
TailMoments tail_moments(std::span<const float> values, float threshold, float largest) noexcept;

// How tail_moments scales: e is multiplied by tail_unit(largest) before it is summed, and
// `unscaled` takes that back.
float tail_unit(float largest) noexcept;
TailMoments unscaled(TailMoments scaled, float largest) noexcept;

// The same, and in the same read what select_above(values, 0, listed_above, positions, kept, {})
// gives. REQUIRES: as for both.
TailMoments tail_moments_and_list(std::span<const float> values, float threshold, float largest,
                                  float listed_above, std::span<uint32_t> positions,
                                  std::span<float> kept, Selection& listed) noexcept;

// Writes the values with |x| > threshold to `kept`, and what stands beside them in `positions` to
// `kept_positions`, in order; returns how many. The outputs may be the inputs themselves, to
// compact in place. REQUIRES: outputs as long as the inputs; positions empty or as long as values.
size_t compact_above(std::span<const float> values, std::span<const uint32_t> positions,
                     float threshold, std::span<float> kept,
                     std::span<uint32_t> kept_positions) noexcept;

// Sum of ln((|x| + guard) / unit), to about 1e-15 of its size: what a gamma law is fitted by.
// REQUIRES: finite values; guard > 0; unit > 0; every ratio between 1e-290 and 1e290.
double log_sum(std::span<const float> values, double guard, double unit) noexcept;

}  // namespace thinwire::kernel
