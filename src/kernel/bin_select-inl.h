// AdaComp's rule for one vector, which short and long bins share.
// SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(THINWIRE_KERNEL_BIN_SELECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THINWIRE_KERNEL_BIN_SELECT_INL_H_
#undef THINWIRE_KERNEL_BIN_SELECT_INL_H_
#else
#define THINWIRE_KERNEL_BIN_SELECT_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 8>;  // so that a mask is at most a byte
using V = hn::Vec<D>;

constexpr size_t kWord = 64;  // values whose selection fits a word

HWY_INLINE uint64_t BitsOf(hn::Mask<D> mask) {
  uint8_t bits[8] = {};
  hn::StoreMaskBits(D(), mask, bits);
  return bits[0];
}

// Bit i: |G + factor * fresh| reaches max and G has a sign. The latter also keeps bins of zeros silent.
HWY_INLINE uint64_t Chosen(V g, V fresh, V factor, V max) {
  const D d;
  const auto h = hn::Add(g, hn::Mul(factor, fresh));
  return BitsOf(hn::And(hn::Ge(hn::Abs(h), max), hn::Ne(g, hn::Zero(d))));
}

}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
