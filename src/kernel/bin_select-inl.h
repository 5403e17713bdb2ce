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

constexpr size_t kWord = 64;  // values whose selection fits a word

// Bit i: lane i of at most 16.
template <class D>
HWY_INLINE uint64_t BitsOf(D d, hn::Mask<D> mask) {
  static_assert(hn::MaxLanes(D()) <= 16);
  uint8_t bits[8] = {};  // StoreMaskBits writes no more than 8
  hn::StoreMaskBits(d, mask, bits);
  return hn::MaxLanes(d) > 8 ? bits[0] | uint64_t{bits[1]} << 8 : bits[0];
}

// Bit i: |G + factor * fresh| reaches max and G has a sign. The latter also keeps bins of zeros
// silent.
template <class D, class V = hn::Vec<D>>
HWY_INLINE uint64_t Chosen(D d, V g, V fresh, V factor, V max) {
  const auto h = hn::Add(g, hn::Mul(factor, fresh));
  return BitsOf(d, hn::And(hn::Ge(hn::Abs(h), max), hn::Ne(g, hn::Zero(d))));
}

}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
