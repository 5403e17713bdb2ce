// Selects the values above a threshold, at the speed of a plain scan while few values pass.
//
// 64 values become one 64-bit mask. Its first four set bits (eight where many pass) are written as
// positions whether they exist or not, and the end of the list moves by the population count: no
// branch depends on the data except "more than that in 64", which is rare. Values are copied and
// zeroed afterwards, block by block, while they are still in the first-level cache.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/select.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/select.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernel/fixed_lanes-inl.h"
#include "kernel/parts.h"
#include "kernel/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

constexpr size_t kSelectBlock = 4096;  // values: 16 KB, half of a small first-level cache

enum class Rest { kNone, kSame, kOther };

// Moves on from `next` by at most a block; stops before that only at a value that did not fit.
template <size_t kBurst, class Test>
HWY_INLINE size_t SelectBlock(const float* x, size_t next, size_t end, const Test& test,
                              std::span<uint32_t> positions, size_t& found) {
  for (; next < end; next += kGroup) {
    const uint64_t mask = HWY_LIKELY(end - next >= kGroup) ? GroupMask(x + next, test)
                                                           : ScalarMask(x + next, end - next, test);
    for (size_t i = 0; i < kGroup; i += 16) hwy::Prefetch(x + next + kAhead + i);
    const uint64_t left = Append<kBurst>(mask, static_cast<uint32_t>(next), positions, found);
    if (HWY_UNLIKELY(left != 0)) return next + static_cast<size_t>(std::countr_zero(left));
  }
  return end;
}

template <Rest kRest, class Test>
Selection SelectAs(const float* x, size_t begin, size_t end, const Test& test,
                   std::span<uint32_t> positions, float* kept, float* rest) {
  size_t found = 0;
  size_t next = begin;
  bool dense = false;
  while (next < end) {
    const size_t block_begin = next;
    const size_t block_end = std::min(end, next + kSelectBlock);
    const size_t found_before = found;
    // One block is much like the next. Above 5 % a branch on "more than four in 64" is a coin toss.
    next = dense ? SelectBlock<8>(x, next, block_end, test, positions, found)
                 : SelectBlock<4>(x, next, block_end, test, positions, found);
    dense = found - found_before > kSelectBlock / 20;
    if constexpr (kRest == Rest::kOther) std::copy(x + block_begin, x + next, rest + block_begin);
    if (kept != nullptr)
      for (size_t i = found_before; i < found; ++i) kept[i] = x[positions[i]];
    if constexpr (kRest != Rest::kNone)
      for (size_t i = found_before; i < found; ++i) rest[positions[i]] = 0.0f;
    if (next < block_end) break;
  }
  return {.kept = found, .next = next};
}

template <class Test>
Selection SelectPassing(const float* x, size_t begin, size_t end, const Test& test,
                        std::span<uint32_t> positions, float* kept, float* rest) {
  if (rest == nullptr) return SelectAs<Rest::kNone>(x, begin, end, test, positions, kept, rest);
  if (rest == x) return SelectAs<Rest::kSame>(x, begin, end, test, positions, kept, rest);
  return SelectAs<Rest::kOther>(x, begin, end, test, positions, kept, rest);
}

Selection Select(const float* x, size_t begin, size_t end, int32_t key,
                 std::span<uint32_t> positions, float* kept, float* rest) {
  return SelectPassing(x, begin, end, MagnitudeAbove{key}, positions, kept, rest);
}

Selection SelectSide(const float* x, size_t begin, size_t end, int32_t key, int32_t sign,
                     std::span<uint32_t> positions, float* kept, float* rest) {
  return SelectPassing(x, begin, end, SideAbove{key, sign}, positions, kept, rest);
}

size_t Count(const float* HWY_RESTRICT x, size_t n, int32_t key) {
  const DF d;
  const DI di;
  const MagnitudeAbove test{key};
  const size_t lanes = hn::Lanes(d);
  size_t total = 0;
  size_t i = 0;
  while (i + 4 * lanes <= n) {
    // A lane counts at most 2^20 before it is added up.
    const size_t stop = std::min(n, i + (size_t{1} << 20));
    auto c0 = hn::Zero(di), c1 = c0, c2 = c0, c3 = c0;
    for (; i + 4 * lanes <= stop; i += 4 * lanes) {
      c0 = hn::Sub(c0, hn::VecFromMask(di, test.lanes(hn::LoadU(d, x + i))));
      c1 = hn::Sub(c1, hn::VecFromMask(di, test.lanes(hn::LoadU(d, x + i + lanes))));
      c2 = hn::Sub(c2, hn::VecFromMask(di, test.lanes(hn::LoadU(d, x + i + 2 * lanes))));
      c3 = hn::Sub(c3, hn::VecFromMask(di, test.lanes(hn::LoadU(d, x + i + 3 * lanes))));
    }
    const auto sum = hn::SumOfLanes(di, hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)));
    total += static_cast<size_t>(hn::GetLane(sum));
  }
  for (; i < n; i += kGroup) {
    const size_t count = std::min(kGroup, n - i);
    total += static_cast<size_t>(std::popcount(ScalarMask(x + i, count, test)));
  }
  return total;
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {

HWY_EXPORT(Select);
HWY_EXPORT(SelectSide);
HWY_EXPORT(Count);

// |x| > t is magnitude bits > key_above(t); one less gives >=, also at t = 0, where all pass.
int32_t key_above(float threshold) noexcept {
  assert(threshold >= 0);
  return std::bit_cast<int32_t>(threshold) & 0x7fffffff;  // -0 is 0
}

void check(std::span<const float> values, size_t begin, std::span<const uint32_t> positions,
           std::span<const float> kept, std::span<const float> rest) noexcept {
  assert(begin <= values.size() && values.size() <= (uint64_t{1} << 32));
  assert(kept.empty() || kept.size() == positions.size());
  assert(rest.empty() || rest.size() == values.size());
  (void)values, (void)begin, (void)positions, (void)kept, (void)rest;
}

float* data_or_null(std::span<float> span) noexcept { return span.empty() ? nullptr : span.data(); }

Selection select(std::span<const float> values, size_t begin, int32_t key,
                 std::span<uint32_t> positions, std::span<float> kept,
                 std::span<float> rest) noexcept {
  check(values, begin, positions, kept, rest);
  return HWY_DYNAMIC_DISPATCH(Select)(values.data(), begin, values.size(), key, positions,
                                      data_or_null(kept), data_or_null(rest));
}

size_t count(std::span<const float> values, int32_t key) noexcept {
  const auto& count_part = HWY_DYNAMIC_DISPATCH(Count);
  std::atomic<size_t> total{0};
  parallel_for(values.size(), kPartUnit, [&](size_t begin, size_t end) {
    total += count_part(values.data() + begin, end - begin, key);
  });
  return total;
}

}  // namespace

size_t count_above(std::span<const float> values, float threshold) noexcept {
  return count(values, key_above(threshold));
}

Selection select_above(std::span<const float> values, size_t begin, float threshold,
                       std::span<uint32_t> positions, std::span<float> kept,
                       std::span<float> rest) noexcept {
  return select(values, begin, key_above(threshold), positions, kept, rest);
}

Selection select_side(std::span<const float> values, size_t begin, float threshold, Side side,
                      std::span<uint32_t> positions, std::span<float> kept,
                      std::span<float> rest) noexcept {
  if (side == Side::kBoth) return select_above(values, begin, threshold, positions, kept, rest);
  check(values, begin, positions, kept, rest);
  const int32_t sign = side == Side::kNegative ? std::numeric_limits<int32_t>::min() : 0;
  return HWY_DYNAMIC_DISPATCH(SelectSide)(values.data(), begin, values.size(), key_above(threshold),
                                          sign, positions, data_or_null(kept), data_or_null(rest));
}

Selection select_at_least(std::span<const float> values, size_t begin, float threshold,
                          std::span<uint32_t> positions, std::span<float> kept,
                          std::span<float> rest) noexcept {
  return select(values, begin, key_above(threshold) - 1, positions, kept, rest);
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
