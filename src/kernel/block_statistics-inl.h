// The statistics of a block that its scale needs, in one pass; the same bits on every target.
// SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(THINWIRE_KERNEL_BLOCK_STATISTICS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THINWIRE_KERNEL_BLOCK_STATISTICS_INL_H_
#undef THINWIRE_KERNEL_BLOCK_STATISTICS_INL_H_
#else
#define THINWIRE_KERNEL_BLOCK_STATISTICS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The largest |x[i]|; 0 without values.
HWY_INLINE float AbsMax(const float* HWY_RESTRICT x, size_t count) {
  const hn::CappedTag<float, 8> d;
  const size_t lanes = hn::Lanes(d);
  auto m0 = hn::Zero(d), m1 = hn::Zero(d), m2 = hn::Zero(d), m3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    m0 = hn::Max(m0, hn::Abs(hn::LoadU(d, x + i)));
    m1 = hn::Max(m1, hn::Abs(hn::LoadU(d, x + i + lanes)));
    m2 = hn::Max(m2, hn::Abs(hn::LoadU(d, x + i + 2 * lanes)));
    m3 = hn::Max(m3, hn::Abs(hn::LoadU(d, x + i + 3 * lanes)));
  }
  float max = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
  for (; i < count; ++i) max = std::max(max, std::abs(x[i]));
  return max;
}

struct Range {
  float low, high;
};

// The smallest and the largest value. REQUIRES: count > 0.
HWY_INLINE Range MinMax(const float* HWY_RESTRICT x, size_t count) {
  const hn::CappedTag<float, 8> d;
  const size_t lanes = hn::Lanes(d);
  Range range = {x[0], x[0]};
  auto low0 = hn::Set(d, x[0]), low1 = low0, high0 = low0, high1 = low0;
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    low0 = hn::Min(low0, a);
    high0 = hn::Max(high0, a);
    low1 = hn::Min(low1, b);
    high1 = hn::Max(high1, b);
  }
  range.low = hn::GetLane(hn::MinOfLanes(d, hn::Min(low0, low1)));
  range.high = hn::GetLane(hn::MaxOfLanes(d, hn::Max(high0, high1)));
  for (; i < count; ++i) {
    range.low = std::min(range.low, x[i]);
    range.high = std::max(range.high, x[i]);
  }
  // Zeros of both signs are equal, and which one a minimum returns depends on the order.
  return {range.low + 0.0f, range.high + 0.0f};
}

}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
