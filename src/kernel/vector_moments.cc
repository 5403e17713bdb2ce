// Moments of a vector, and of a sum of two vectors while it is formed.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/vector_moments.h"

#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/vector_moments.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernel/moment_lanes-inl.h"
#include "kernel/moment_parts.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

Moments Measure(const float* x, size_t count, Moments* chunks) {
  return ReduceMoments(
      chunks, count, [x](size_t i) HWY_ATTR { return hn::LoadU(DF(), x + i); },
      [x](size_t i) { return x[i]; }, x);
}

Moments AddWithMoments(const float* a, const float* b, float* out, size_t count, size_t whole,
                       Moments* chunks) {
  const auto tail = [=](size_t i) { return out[i] = a[i] + b[i]; };
  if (CanStream(out, whole) && out != a && out != b) {
    const auto at = [=](size_t i) HWY_ATTR {
      const VF sum = hn::Add(hn::LoadU(DF(), a + i), hn::LoadU(DF(), b + i));
      hn::Stream(sum, DF(), out + i);
      return sum;
    };
    const Moments total = ReduceMoments(chunks, count, at, tail, a, b);
    hwy::FlushStream();
    return total;
  }
  const auto at = [=](size_t i) HWY_ATTR {
    const VF sum = hn::Add(hn::LoadU(DF(), a + i), hn::LoadU(DF(), b + i));
    hn::StoreU(sum, DF(), out + i);
    return sum;
  };
  return ReduceMoments(chunks, count, at, tail, a, b);
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
  const auto& measure = HWY_DYNAMIC_DISPATCH(Measure);
  return moments_of_parts(values.size(), [&](size_t begin, size_t end, Moments* chunks) {
    return measure(values.data() + begin, end - begin, chunks);
  });
}

Moments add_with_moments(std::span<const float> a, std::span<const float> b,
                         std::span<float> out) noexcept {
  const auto& add = HWY_DYNAMIC_DISPATCH(AddWithMoments);
  return moments_of_parts(out.size(), [&](size_t begin, size_t end, Moments* chunks) {
    return add(a.data() + begin, b.data() + begin, out.data() + begin, end - begin, out.size(),
               chunks);
  });
}

double value_sum(std::span<const float> values) noexcept {
  return HWY_DYNAMIC_DISPATCH(Sum)(values.data(), values.size());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
