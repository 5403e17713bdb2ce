// Moments of a vector, and of a sum of two vectors while it is formed.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/vector_moments.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/vector_moments.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernel/fixed_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

// Sums of one chunk. A square of floats is exact in double, so that MulAdd rounds once whether or
// not the target fuses it.
struct Lanes {
  VD abs_sum[2 * kVectors];
  VD square_sum[2 * kVectors];
  VF abs_max;

  HWY_INLINE void clear() {
    for (VD& sum : abs_sum) sum = hn::Zero(DD());
    for (VD& sum : square_sum) sum = hn::Zero(DD());
    abs_max = hn::Zero(DF());
  }

  HWY_INLINE void add(size_t v, VF x) {
    const VF magnitude = hn::Abs(x);
    abs_max = hn::Max(abs_max, magnitude);
    add_wide(2 * v, WidenLower(magnitude));
    add_wide(2 * v + 1, WidenUpper(magnitude));
  }

  HWY_INLINE void settle() {}

  HWY_INLINE void flush(Moments& total) const {
    total.abs_sum += FoldSum(abs_sum);
    total.square_sum += FoldSum(square_sum);
    HWY_ALIGN float lane[kStep];
    hn::Store(abs_max, DF(), lane);
    for (const float magnitude : lane) total.abs_max = std::max(total.abs_max, magnitude);
  }

 private:
  HWY_INLINE void add_wide(size_t v, VD magnitude) {
    abs_sum[v] = hn::Add(abs_sum[v], magnitude);
    square_sum[v] = hn::MulAdd(magnitude, magnitude, square_sum[v]);
  }
};

template <class At, class Tail, class... Sources>
HWY_INLINE Moments Reduce(size_t count, const At& at, const Tail& tail, Sources... sources) {
  Lanes lanes;
  Moments total;
  ReduceChunks(count, at, tail, lanes, total, sources...);
  // No sum of finite floats overflows a double, and a NaN or Inf stays in the sum of magnitudes.
  total.finite = std::isfinite(total.abs_sum);
  return total;
}

Moments Measure(const float* x, size_t count) {
  return Reduce(
      count, [x](size_t i) HWY_ATTR { return hn::LoadU(DF(), x + i); },
      [x](size_t i) { return x[i]; }, x);
}

Moments AddWithMoments(const float* a, const float* b, float* out, size_t count) {
  const auto tail = [=](size_t i) { return out[i] = a[i] + b[i]; };
  // An ordinary store reads the line it is about to overwrite: a fourth stream that non-temporal
  // stores save. They only pay where the result would not have stayed in cache.
  constexpr size_t kStreamFrom = size_t{1} << 21;
  const bool aligned = reinterpret_cast<uintptr_t>(out) % (kStep * sizeof(float)) == 0;
  if (count >= kStreamFrom && aligned && out != a && out != b) {
    const auto at = [=](size_t i) HWY_ATTR {
      const VF sum = hn::Add(hn::LoadU(DF(), a + i), hn::LoadU(DF(), b + i));
      hn::Stream(sum, DF(), out + i);
      return sum;
    };
    const Moments total = Reduce(count, at, tail, a, b);
    hwy::FlushStream();
    return total;
  }
  const auto at = [=](size_t i) HWY_ATTR {
    const VF sum = hn::Add(hn::LoadU(DF(), a + i), hn::LoadU(DF(), b + i));
    hn::StoreU(sum, DF(), out + i);
    return sum;
  };
  return Reduce(count, at, tail, a, b);
}

struct SumLanes {
  VD sum[2 * kVectors];

  HWY_INLINE void clear() {
    for (VD& part : sum) part = hn::Zero(DD());
  }
  HWY_INLINE void add(size_t v, VF x) {
    sum[2 * v] = hn::Add(sum[2 * v], WidenLower(x));
    sum[2 * v + 1] = hn::Add(sum[2 * v + 1], WidenUpper(x));
  }
  HWY_INLINE void settle() {}
  HWY_INLINE void flush(double& total) const { total += FoldSum(sum); }
};

double Sum(const float* x, size_t count) {
  static_assert(kSumChunk == kChunk);
  SumLanes lanes;
  double total = 0;
  const auto at = [=](size_t i) HWY_ATTR { return hn::LoadU(DF(), x + i); };
  const auto tail = [=](size_t i) { return x[i]; };
  ReduceChunks(count, at, tail, lanes, total, x);
  return total;
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(Measure);
HWY_EXPORT(AddWithMoments);
HWY_EXPORT(Sum);
}  // namespace

Moments moments(std::span<const float> values) noexcept {
  return HWY_DYNAMIC_DISPATCH(Measure)(values.data(), values.size());
}

Moments add_with_moments(std::span<const float> a, std::span<const float> b,
                         std::span<float> out) noexcept {
  return HWY_DYNAMIC_DISPATCH(AddWithMoments)(a.data(), b.data(), out.data(), a.size());
}

double value_sum(std::span<const float> values) noexcept {
  return HWY_DYNAMIC_DISPATCH(Sum)(values.data(), values.size());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
