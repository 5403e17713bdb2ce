// Sums over two vectors, in the order of kernel/fixed_lanes-inl.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/pair_sums.h"

#include <cassert>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/pair_sums.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernel/fixed_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

// A product of floats is exact in double, so that MulAdd rounds once whether or not the target
// fuses it.
struct ProductLanes {
  VD sum[2 * kVectors];

  HWY_INLINE void clear() {
    for (VD& part : sum) part = hn::Zero(DD());
  }
  HWY_INLINE void add(size_t v, VF x, VF y) {
    sum[2 * v] = hn::MulAdd(WidenLower(x), WidenLower(y), sum[2 * v]);
    sum[2 * v + 1] = hn::MulAdd(WidenUpper(x), WidenUpper(y), sum[2 * v + 1]);
  }
};

struct SquareLanes : ProductLanes {
  HWY_INLINE void add(size_t v, VF x, VF y) {
    const VF difference = hn::Sub(x, y);
    ProductLanes::add(v, difference, difference);
  }
};

template <class Lanes>
HWY_INLINE double SumPairs(const float* a, const float* b, size_t count) {
  Lanes lanes;
  double total = 0;
  for (size_t begin = 0; begin < count; begin += kChunk) {
    const size_t end = std::min(begin + kChunk, count);
    lanes.clear();
    size_t i = begin;
    for (; i + kLanes <= end; i += kLanes)
      for (size_t v = 0; v < kVectors; ++v)
        lanes.add(v, hn::LoadU(DF(), a + i + v * kStep), hn::LoadU(DF(), b + i + v * kStep));
    if (i < end) {
      HWY_ALIGN float last_a[kLanes] = {}, last_b[kLanes] = {};
      std::copy(a + i, a + end, last_a);
      std::copy(b + i, b + end, last_b);
      for (size_t v = 0; v < kVectors; ++v)
        lanes.add(v, hn::Load(DF(), last_a + v * kStep), hn::Load(DF(), last_b + v * kStep));
    }
    total += FoldSum(lanes.sum);
  }
  return total;
}

double SquareDistance(const float* a, const float* b, size_t count) {
  return SumPairs<SquareLanes>(a, b, count);
}
double Product(const float* a, const float* b, size_t count) {
  return SumPairs<ProductLanes>(a, b, count);
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(SquareDistance);
HWY_EXPORT(Product);
}  // namespace

double square_distance(std::span<const float> a, std::span<const float> b) noexcept {
  assert(a.size() == b.size());
  return HWY_DYNAMIC_DISPATCH(SquareDistance)(a.data(), b.data(), a.size());
}

double product(std::span<const float> a, std::span<const float> b) noexcept {
  assert(a.size() == b.size());
  return HWY_DYNAMIC_DISPATCH(Product)(a.data(), b.data(), a.size());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
