// Masks of 64 values, and the positions of their bits.
// SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(THINWIRE_KERNEL_SELECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THINWIRE_KERNEL_SELECT_INL_H_
#undef THINWIRE_KERNEL_SELECT_INL_H_
#else
#define THINWIRE_KERNEL_SELECT_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hwy/highway.h"
#include "kernel/fixed_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {

using DI = hn::RebindToSigned<DF>;

constexpr size_t kGroup = 64;  // values per mask
constexpr int32_t kMagnitude = 0x7fffffff;

// What a value must pass: its magnitude is above `key`, compared as integers.
struct MagnitudeAbove {
  int32_t key;

  HWY_INLINE hn::Mask<DI> lanes(VF values) const {
    const DI di;
    const auto magnitude = hn::And(hn::BitCast(di, values), hn::Set(di, kMagnitude));
    return hn::Gt(magnitude, hn::Set(di, key));
  }
  HWY_INLINE bool one(float value) const {
    return (std::bit_cast<int32_t>(value) & kMagnitude) > key;
  }
};

// The same, and its sign bit is that of `sign`. Values of the other sign are negative integers once
// `sign` is taken off. REQUIRES: key >= 0.
struct SideAbove {
  int32_t key;
  int32_t sign;  // 0, or the sign bit alone

  HWY_INLINE hn::Mask<DI> lanes(VF values) const {
    const DI di;
    return hn::Gt(hn::Xor(hn::BitCast(di, values), hn::Set(di, sign)), hn::Set(di, key));
  }
  HWY_INLINE bool one(float value) const { return (std::bit_cast<int32_t>(value) ^ sign) > key; }
};

// Bit i says whether x[i] passes.
template <class Test>
HWY_INLINE uint64_t GroupMask(const float* HWY_RESTRICT x, const Test& test) {
  const size_t lanes = hn::Lanes(DF());
  uint64_t mask = 0;
  for (size_t i = 0; i < kGroup; i += lanes) {
    uint8_t bits[8] = {};  // StoreMaskBits may write eight bytes
    hn::StoreMaskBits(DI(), test.lanes(hn::LoadU(DF(), x + i)), bits);
    uint64_t word = bits[0];
    if (lanes > 8) word |= uint64_t{bits[1]} << 8;
    mask |= word << i;
  }
  return mask;
}

template <class Test>
HWY_INLINE uint64_t ScalarMask(const float* HWY_RESTRICT x, size_t count, const Test& test) {
  uint64_t mask = 0;
  for (size_t i = 0; i < count; ++i) mask |= uint64_t{test.one(x[i])} << i;
  return mask;
}

// Appends the positions of the set bits, `at` plus their index, and returns what did not fit.
// kBurst of them are written at a time, whether they exist or not.
template <size_t kBurst>
HWY_INLINE uint64_t Append(uint64_t mask, uint32_t at, std::span<uint32_t> positions,
                           size_t& found) {
  static_assert(kGroup % kBurst == 0);  // what is written stays within the room for a group
  const auto position = [&] { return at + static_cast<uint32_t>(std::countr_zero(mask)); };
  if (HWY_LIKELY(positions.size() - found >= kGroup)) {
    uint32_t* HWY_RESTRICT to = positions.data() + found;
    const auto bits = static_cast<size_t>(std::popcount(mask));
    for (size_t i = 0; i == 0 || HWY_UNLIKELY(i < bits); i += kBurst)
      for (size_t j = 0; j < kBurst; ++j, mask &= mask - 1) to[i + j] = position();
    found += bits;
    return 0;
  }
  for (; mask != 0 && found < positions.size(); mask &= mask - 1) positions[found++] = position();
  return mask;
}

}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
