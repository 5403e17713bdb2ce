// Codes of k bits, one per byte, to a string of bits and back, in vectors; 1 <= k <= 8.
// SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(THINWIRE_KERNEL_CODE_BITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THINWIRE_KERNEL_CODE_BITS_INL_H_
#undef THINWIRE_KERNEL_CODE_BITS_INL_H_
#else
#define THINWIRE_KERNEL_CODE_BITS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D8 = hn::CappedTag<uint8_t, 32>;
using V8 = hn::Vec<D8>;
constexpr size_t kCodeGroup = hn::MaxLanes(D8());  // codes of a vector
constexpr size_t kPackReach = 32;  // bytes from the first that storing or loading them may touch

// Codes lie eight bits apart. A step joins neighbours by shifts: pairs, then fours, then eights, at
// four operations a vector. As soon as what was joined is whole bytes, a shuffle within 128 bits
// does the rest: after 3 steps for odd k, 2 for 2 and 6 bits, 1 for 4. Unpacking goes the same way
// back.
constexpr size_t packer_steps(size_t bits) {
  return bits % 2 != 0 ? 3 : bits % 4 != 0 ? 2 : bits % 8 != 0 ? 1 : 0;
}

template <size_t kSteps>
class BitPacker {
 public:
  // REQUIRES: packer_steps(bits) == kSteps.
  explicit BitPacker(size_t bits) : bits_(bits) {
    for (size_t step = 0; step < kSteps; ++step) {
      const size_t width = bits << step;       // of what has been joined so far
      const size_t apart = size_t{8} << step;  // distance of two of them
      const uint64_t low = (uint64_t{1} << width) - 1;
      uint64_t mask = 0;
      for (size_t at = 0; at < 64; at += 2 * apart) mask |= low << at;
      low_[step] = hn::Set(D64(), mask);
      high_[step] = hn::Set(D64(), mask << width);
      far_[step] = hn::Set(D64(), mask << apart);
      shift_[step] = static_cast<int>(apart - width);
    }
    // What was joined lies in the first `used` of every `room` bytes.
    const size_t room = size_t{1} << kSteps, used = bits * room / 8;
    HWY_ALIGN uint8_t join[16];
    HWY_ALIGN uint8_t part[16];
    for (size_t i = 0; i < 16; ++i) {
      join[i] = static_cast<uint8_t>(i < 2 * bits ? i / used * room + i % used : kNone);
      part[i] = static_cast<uint8_t>(i % room < used ? i / room * used + i % room : kNone);
    }
    join_ = hn::LoadDup128(D8(), join);
    part_ = hn::LoadDup128(D8(), part);
  }

  size_t size(size_t count) const { return (count * bits_ + 7) / 8; }

  // Writes the size(kCodeGroup) bytes of a vector of codes below 2^k, and zeros after them.
  HWY_INLINE void Store(V8 codes, std::byte* out) const {
    auto* to = reinterpret_cast<uint8_t*>(out);
    const V8 packed = kSteps == 0 ? codes : Join(codes);
    if constexpr (kSteps > 0 &&
                  kCodeGroup == 32) {  // the upper half overwrites the zeros after the lower one
      const hn::Half<D8> half;
      hn::StoreU(hn::LowerHalf(half, packed), half, to);
      hn::StoreU(hn::UpperHalf(half, packed), half, to + 2 * bits_);
    } else {
      hn::StoreU(packed, D8(), to);
    }
  }

  HWY_INLINE V8 Load(const std::byte* in) const {
    const auto* from = reinterpret_cast<const uint8_t*>(in);
    if constexpr (kSteps == 0) {
      return hn::LoadU(D8(), from);
    } else if constexpr (kCodeGroup == 32) {
      const hn::Half<D8> half;
      return Part(hn::Combine(D8(), hn::LoadU(half, from + 2 * bits_), hn::LoadU(half, from)));
    } else {
      return Part(hn::LoadU(D8(), from));
    }
  }

  // The same for the first n <= kCodeGroup codes, touching their size(n) bytes only. The others are
  // taken for 0, and come out as 0.
  HWY_INLINE void StoreFirst(V8 codes, size_t n, std::byte* out) const {
    HWY_ALIGN std::byte packed[kPackReach];
    Store(hn::IfThenElseZero(hn::FirstN(D8(), n), codes), packed);
    std::memcpy(out, packed, size(n));
  }

  HWY_INLINE V8 LoadFirst(const std::byte* in, size_t n) const {
    HWY_ALIGN std::byte packed[kPackReach] = {};
    std::memcpy(packed, in, size(n));
    return hn::IfThenElseZero(hn::FirstN(D8(), n), Load(packed));
  }

 private:
  using D64 = hn::Repartition<uint64_t, D8>;
  using V64 = hn::Vec<D64>;
  static constexpr uint8_t kNone = 0x80;  // TableLookupBytesOr0 gives 0

  HWY_INLINE V8 Join(V8 codes) const {
    V64 x = hn::BitCast(D64(), codes);
    for (size_t step = 0; step < kSteps; ++step)
      x = hn::Or(hn::And(x, low_[step]), hn::And(hn::ShiftRightSame(x, shift_[step]), high_[step]));
    return hn::TableLookupBytesOr0(hn::BitCast(D8(), x), join_);
  }

  HWY_INLINE V8 Part(V8 packed) const {
    V64 x = hn::BitCast(D64(), hn::TableLookupBytesOr0(packed, part_));
    for (size_t step = kSteps; step-- > 0;)
      x = hn::Or(hn::And(x, low_[step]), hn::And(hn::ShiftLeftSame(x, shift_[step]), far_[step]));
    return hn::BitCast(D8(), x);
  }

  size_t bits_;
  V64 low_[3], high_[3], far_[3];
  int shift_[3];
  V8 join_, part_;
};

// Calls body with the packer for codes of `bits` bits.
template <class Body>
HWY_INLINE auto WithPacker(size_t bits, const Body& body) {
  switch (packer_steps(bits)) {
    case 0:
      return body(BitPacker<0>(bits));
    case 1:
      return body(BitPacker<1>(bits));
    case 2:
      return body(BitPacker<2>(bits));
    default:
      return body(BitPacker<3>(bits));
  }
}

}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
