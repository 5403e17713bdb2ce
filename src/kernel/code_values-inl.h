// Floats to packed codes and back under a rule: the loop that all quantisers share.
// SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(THINWIRE_KERNEL_CODE_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THINWIRE_KERNEL_CODE_VALUES_INL_H_
#undef THINWIRE_KERNEL_CODE_VALUES_INL_H_
#else
#define THINWIRE_KERNEL_CODE_VALUES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernel/code_bits-inl.h"
#include "kernel/fetch_early-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using CodeF = hn::CappedTag<float, 8>;
using CodeU = hn::RebindToUnsigned<CodeF>;
using CodeI = hn::RebindToSigned<CodeF>;
using VCodeF = hn::Vec<CodeF>;
using VCodeU = hn::Vec<CodeU>;
constexpr size_t kCodeLanes = hn::MaxLanes(CodeF());
static_assert(kCodeGroup == 4 * kCodeLanes);  // four vectors of values make one of codes

// 1.5 * 2^23: adding it to |t| <= 2^22 rounds t to the nearest whole number, ties to even, which
// then stands in the low bits in two's complement, and minus 1.5 * 2^23 is that number.
constexpr float kWhole = 0x1.8p23f;

// Brings the low bytes of four vectors of words into the order of their values, and back. Words of
// four bytes, one of each vector, are made by shifts; two shuffles sort the bytes.
class CodeOrder {
 public:
  CodeOrder() {
    HWY_ALIGN uint8_t turn[16];  // a 4 x 4 matrix on its side, which undoes itself
    for (size_t i = 0; i < 16; ++i) turn[i] = static_cast<uint8_t>(i % 4 * 4 + i / 4);
    turn_ = hn::LoadDup128(D8(), turn);
    HWY_ALIGN int32_t sort[kCodeLanes];
    HWY_ALIGN int32_t unsort[kCodeLanes];
    constexpr size_t kBlocks = kCodeLanes / 4;  // of 128 bits
    for (size_t vector = 0; vector < 4; ++vector)
      for (size_t block = 0; block < kBlocks; ++block) {
        sort[vector * kBlocks + block] = static_cast<int32_t>(block * 4 + vector);
        unsort[block * 4 + vector] = static_cast<int32_t>(vector * kBlocks + block);
      }
    sort_ = hn::SetTableIndices(CodeU(), sort);
    unsort_ = hn::SetTableIndices(CodeU(), unsort);
  }

  // Words are below 256.
  HWY_INLINE V8 Join(const VCodeU* words) const {
    const VCodeU low = hn::Or(words[0], hn::ShiftLeft<8>(words[1]));
    const VCodeU high = hn::Or(words[2], hn::ShiftLeft<8>(words[3]));
    const VCodeU mixed = hn::Or(low, hn::ShiftLeft<16>(high));
    return hn::BitCast(D8(), hn::TableLookupLanes(Turn(mixed), sort_));
  }

  // Byte v of each word belongs to vector v.
  HWY_INLINE VCodeU Part(V8 codes) const {
    return Turn(hn::TableLookupLanes(hn::BitCast(CodeU(), codes), unsort_));
  }

 private:
  HWY_INLINE VCodeU Turn(VCodeU words) const {
    return hn::BitCast(CodeU(), hn::TableLookupBytes(hn::BitCast(D8(), words), turn_));
  }

  V8 turn_;
  decltype(hn::SetTableIndices(CodeU(), static_cast<const int32_t*>(nullptr))) sort_, unsort_;
};

// The codes that rule.Code(values, at, decoded) gives for kCodeGroup values from x on; `at` is the
// index of a vector's first value. A rest that is not null receives values - *decoded.
template <class Rule>
HWY_INLINE V8 CodeGroup(const Rule& rule, const CodeOrder& order, const float* x, size_t at,
                        float* rest) {
  const CodeF d;
  VCodeU words[4];
  for (size_t v = 0; v < 4; ++v) {
    const VCodeF value = hn::LoadU(d, x + v * kCodeLanes);
    VCodeF decoded;
    words[v] = rule.Code(value, at + v * kCodeLanes, &decoded);
    if (rest != nullptr) hn::StoreU(hn::Sub(value, decoded), d, rest + v * kCodeLanes);
  }
  return order.Join(words);
}

// Packs the codes of `count` values into packer.size(count) bytes, and perhaps zeros after them,
// but never at `end` or later. A rest that is not null may be x.
template <class Rule, class Packer>
HWY_INLINE void EncodeCodes(const Rule& rule, const CodeOrder& order, const Packer& packer,
                            const float* x, size_t count, std::byte* out, const std::byte* end,
                            float* rest) {
  size_t i = 0;
  for (; i + kCodeGroup <= count && out + kPackReach <= end; i += kCodeGroup) {
    FetchEarly(x + i);
    packer.Store(CodeGroup(rule, order, x + i, i, rest ? rest + i : nullptr), out);
    out += packer.size(kCodeGroup);
  }
  for (; i < count; i += kCodeGroup) {
    const size_t n = std::min(kCodeGroup, count - i);
    HWY_ALIGN float last[kCodeGroup] = {};
    std::memcpy(last, x + i, n * sizeof(float));
    packer.StoreFirst(CodeGroup(rule, order, last, i, last), n, out);
    if (rest) std::memcpy(rest + i, last, n * sizeof(float));
    out += packer.size(n);
  }
}

// out[i] += rule.Value<v>(words), byte v of whose words is the code, for kCodeGroup values.
template <class Rule>
HWY_INLINE void AddGroup(const Rule& rule, const CodeOrder& order, V8 codes, float* out) {
  const CodeF d;
  const VCodeU words = order.Part(codes);
  const auto add = [&](size_t v, VCodeF value) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, out + v * kCodeLanes), value), d, out + v * kCodeLanes);
  };
  add(0, rule.template Value<0>(words));
  add(1, rule.template Value<1>(words));
  add(2, rule.template Value<2>(words));
  add(3, rule.template Value<3>(words));
}

// Adds `count` decoded values to `out`, after rule.Check(codes) of each group. Reads the
// packer.size(count) bytes of the codes and perhaps beyond, but never at `end` or later.
template <class Rule, class Packer>
HWY_INLINE void AddCodes(Rule& rule, const CodeOrder& order, const Packer& packer,
                         const std::byte* in, const std::byte* end, float* out, size_t count) {
  size_t i = 0;
  for (; i + kCodeGroup <= count && in + kPackReach <= end; i += kCodeGroup) {
    FetchEarly(out + i);
    AddGroup(rule, order, rule.Check(packer.Load(in)), out + i);
    in += packer.size(kCodeGroup);
  }
  for (; i < count; i += kCodeGroup) {
    const size_t n = std::min(kCodeGroup, count - i);
    HWY_ALIGN float last[kCodeGroup] = {};
    std::memcpy(last, out + i, n * sizeof(float));
    AddGroup(rule, order, rule.Check(packer.LoadFirst(in, n)), last);
    std::memcpy(out + i, last, n * sizeof(float));
    in += packer.size(n);
  }
}

}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
