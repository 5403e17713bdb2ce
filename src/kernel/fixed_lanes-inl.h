// Sums in a fixed order: sixteen virtual lanes in double, whatever the vector length.
// SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(THINWIRE_KERNEL_FIXED_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THINWIRE_KERNEL_FIXED_LANES_INL_H_
#undef THINWIRE_KERNEL_FIXED_LANES_INL_H_
#else
#define THINWIRE_KERNEL_FIXED_LANES_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Position i of a chunk always meets lane i % kLanes: sixteen doubles are two vectors of AVX-512,
// four of AVX2, eight of SSE. Two at least hide the latency of Add.
constexpr size_t kLanes = 16;
constexpr size_t kChunk = 8192;  // values whose sums are folded before they meet those of others

using DF = hn::CappedTag<float, kLanes>;
using DD = hn::Repartition<double, DF>;
using VF = hn::Vec<DF>;
using VD = hn::Vec<DD>;
constexpr size_t kStep = hn::MaxLanes(DF());  // floats of one vector
constexpr size_t kHalf = hn::MaxLanes(DD());  // doubles of one vector: half of them
constexpr size_t kVectors = kLanes / kStep;   // vectors of floats that hold the lanes once

HWY_INLINE VD WidenLower(VF x) { return hn::PromoteTo(DD(), hn::LowerHalf(x)); }
HWY_INLINE VD WidenUpper(VF x) { return hn::PromoteTo(DD(), hn::UpperHalf(hn::Half<DF>(), x)); }

// Adds lanes pairwise, halves first. `sums` are 2 * kVectors vectors in lane order.
HWY_INLINE double FoldSum(const VD* sums) {
  VD folded[2 * kVectors];
  std::copy(sums, sums + 2 * kVectors, folded);
  for (size_t half = kVectors; half > 0; half /= 2)
    for (size_t v = 0; v < half; ++v) folded[v] = hn::Add(folded[v], folded[v + half]);
  HWY_ALIGN double lane[kHalf];
  hn::Store(folded[0], DD(), lane);
  for (size_t half = kHalf / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

// Values that are fetched early: the hardware's own prefetch leaves a tenth of the bandwidth unused
// once a loop does more than read.
constexpr size_t kAhead = 512;

// Sums of at most this many values may be kept in float, kBlock / kLanes = 32 to a lane.
constexpr size_t kBlock = 512;
static_assert(kChunk % kBlock == 0);

// Runs lanes.add(v, at(i)), at(i) being the vector of values from i on, over all whole groups of
// kLanes values. The last values come from tail(i), one at a time, padded with zeros. Calls
// lanes.settle() after every kBlock values, and lanes.flush(total) after every chunk. `sources` are
// the arrays that at reads. (They are named here because GCC 12 drops a prefetch that a lambda of
// its own makes.)
template <class Lanes, class Total, class At, class Tail, class... Sources>
HWY_INLINE void ReduceChunks(size_t count, const At& at, const Tail& tail, Lanes& lanes,
                             Total& total, Sources... sources) {
  for (size_t begin = 0; begin < count; begin += kChunk) {
    const size_t end = std::min(begin + kChunk, count);
    lanes.clear();
    for (size_t i = begin; i < end;) {
      const size_t stop = std::min(i + kBlock, end);
      for (; i + kLanes <= stop; i += kLanes) {
        (hwy::Prefetch(sources + i + kAhead), ...);
        for (size_t v = 0; v < kVectors; ++v) lanes.add(v, at(i + v * kStep));
      }
      if (i < stop) {
        HWY_ALIGN float last[kLanes] = {};
        for (size_t j = 0; i + j < stop; ++j) last[j] = tail(i + j);
        for (size_t v = 0; v < kVectors; ++v) lanes.add(v, hn::Load(DF(), last + v * kStep));
        i = stop;
      }
      lanes.settle();
    }
    lanes.flush(total);
  }
}

}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
