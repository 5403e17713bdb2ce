// Prefetches the values that a loop over blocks reads a few blocks later.
// SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(THINWIRE_KERNEL_FETCH_EARLY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THINWIRE_KERNEL_FETCH_EARLY_INL_H_
#undef THINWIRE_KERNEL_FETCH_EARLY_INL_H_
#else
#define THINWIRE_KERNEL_FETCH_EARLY_INL_H_
#endif

#include <cstddef>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {

// For every 32 floats that the second pass over a block is done with. The first pass, a maximum or
// a sum, is over too soon to keep memory busy, and the second finds the block in cache: left alone,
// their times add up.
HWY_INLINE void FetchEarly(const float* x) {
  constexpr size_t kAhead = 1024;  // 4 KB: beyond the block at hand, well within the first cache
  hwy::Prefetch(x + kAhead);
  hwy::Prefetch(x + kAhead + 16);
}

}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
