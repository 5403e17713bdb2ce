// Moments of values as they are formed, in the order of kernel/fixed_lanes-inl.h.
// SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(THINWIRE_KERNEL_MOMENT_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THINWIRE_KERNEL_MOMENT_LANES_INL_H_
#undef THINWIRE_KERNEL_MOMENT_LANES_INL_H_
#else
#define THINWIRE_KERNEL_MOMENT_LANES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernel/fixed_lanes-inl.h"
#include "thinwire/moments.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {

// The sums of a vector, or those of each of its chunks, for kernel/moment_parts.h to add in order.
struct MomentSums {
  Moments total;
  Moments* chunks = nullptr;
};

// Sums of one chunk. A square of floats is exact in double, so that MulAdd rounds once whether or
// not the target fuses it.
struct MomentLanes {
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

  HWY_INLINE void flush(MomentSums& sums) const {
    if (sums.chunks == nullptr) {
      flush(sums.total);
    } else {
      *sums.chunks = Moments{};
      flush(*sums.chunks++);
    }
  }
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

// Moments of at(i) and tail(i), as ReduceChunks calls them; or, unless `chunks` is null, those of
// each chunk, without `finite`, to there.
template <class At, class Tail, class... Sources>
HWY_INLINE Moments ReduceMoments(Moments* chunks, size_t count, const At& at, const Tail& tail,
                                 Sources... sources) {
  MomentLanes lanes;
  MomentSums sums{.total = {}, .chunks = chunks};
  ReduceChunks(count, at, tail, lanes, sums, sources...);
  // No sum of finite floats overflows a double, and a NaN or Inf stays in the sum of magnitudes.
  sums.total.finite = std::isfinite(sums.total.abs_sum);
  return sums.total;
}

// An ordinary store reads the line it is about to overwrite: a stream that non-temporal stores
// save. They only pay where the result would not have stayed in cache.
constexpr size_t kStreamFrom = size_t{1} << 21;  // values

// `whole` is the length of all of the vector.
inline bool CanStream(const float* out, size_t whole, size_t from = kStreamFrom) {
  return whole >= from && reinterpret_cast<uintptr_t>(out) % (kStep * sizeof(float)) == 0;
}

}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
