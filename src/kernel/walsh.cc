// Two stages at a time: four vectors are loaded, paired twice and stored, which halves the passes
// over memory. 4096 values, 16 KiB, stay in the nearest cache for all of their twelve stages. A
// value is a tree of additions whose shape is that of the stages, so that it does not depend on the
// length of vectors.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/walsh.h"

#include <bit>
#include <cassert>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/walsh.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that stages of distance 16 and more have whole vectors on every target.
using D = hn::CappedTag<float, 16>;
using D4 = hn::CappedTag<float, 4>;
constexpr size_t kShort = 64;  // fewer values go one by one

template <class V>
HWY_INLINE void Pair(V& a, V& b) {
  const V sum = hn::Add(a, b);
  b = hn::Sub(a, b);
  a = sum;
}

// Stages of distance 1 and 2: vector k has the values 4 i + k.
HWY_INLINE void FirstStages(float* x, size_t n) {
  const D d;
  for (size_t i = 0; i < n; i += 4 * hn::Lanes(d)) {
    hn::Vec<D> a, b, c, e;
    hn::LoadInterleaved4(d, x + i, a, b, c, e);
    Pair(a, b);
    Pair(c, e);
    Pair(a, c);
    Pair(b, e);
    hn::StoreInterleaved4(a, b, c, e, d, x + i);
  }
}

// Stages of distance h and 2 h. REQUIRES: h is a multiple of the lanes, n of 4 h.
template <class Tag>
HWY_INLINE void TwoStages(Tag d, float* x, size_t n, size_t h) {
  for (size_t at = 0; at < n; at += 4 * h)
    for (size_t i = at; i < at + h; i += hn::Lanes(d)) {
      auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + h);
      auto c = hn::LoadU(d, x + i + 2 * h), e = hn::LoadU(d, x + i + 3 * h);
      Pair(a, b);
      Pair(c, e);
      Pair(a, c);
      Pair(b, e);
      hn::StoreU(a, d, x + i);
      hn::StoreU(b, d, x + i + h);
      hn::StoreU(c, d, x + i + 2 * h);
      hn::StoreU(e, d, x + i + 3 * h);
    }
}

HWY_INLINE void LastStage(float* x, size_t n) {
  const D d;
  for (size_t i = 0; i < n / 2; i += hn::Lanes(d)) {
    auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + n / 2);
    Pair(a, b);
    hn::StoreU(a, d, x + i);
    hn::StoreU(b, d, x + i + n / 2);
  }
}

void WalshHadamard(float* x, size_t n) {
  if (n < kShort) {
    for (size_t h = 1; h < n; h *= 2)
      for (size_t at = 0; at < n; at += 2 * h)
        for (size_t i = at; i < at + h; ++i) {
          const float a = x[i], b = x[i + h];
          x[i] = a + b;
          x[i + h] = a - b;
        }
    return;
  }
  FirstStages(x, n);
  TwoStages(D4(), x, n, 4);
  size_t h = 16;
  for (; 4 * h <= n; h *= 4) TwoStages(D(), x, n, h);
  if (h < n) LastStage(x, n);
}

void FlipSigns(const uint32_t* bits, const float* x, size_t n, float* out) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const auto sign = hn::Set(du, 0x80000000u);
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const auto word = hn::Set(du, bits[i / 32]);
    for (size_t j = 0; j < 32; j += hn::Lanes(d)) {
      const auto to_top = hn::Sub(hn::Set(du, static_cast<uint32_t>(31 - j)), hn::Iota(du, 0));
      const auto flip = hn::And(hn::Shl(word, to_top), sign);
      const auto value = hn::BitCast(du, hn::LoadU(d, x + i + j));
      hn::StoreU(hn::BitCast(d, hn::Xor(value, flip)), d, out + i + j);
    }
  }
  for (; i < n; ++i)
    out[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i]) ^ (bits[i / 32] >> i % 32) << 31);
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {

HWY_EXPORT(WalshHadamard);
HWY_EXPORT(FlipSigns);

}  // namespace

void walsh_hadamard(std::span<float> values) noexcept {
  assert(std::has_single_bit(values.size()));
  HWY_DYNAMIC_DISPATCH(WalshHadamard)(values.data(), values.size());
}

void flip_signs(std::span<const uint32_t> bits, std::span<const float> values,
                std::span<float> out) noexcept {
  assert(bits.size() >= (values.size() + 31) / 32 && out.size() == values.size());
  HWY_DYNAMIC_DISPATCH(FlipSigns)(bits.data(), values.data(), values.size(), out.data());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
