// AdaComp's selection in bins of more than 63 values, with codes of two bytes.
//
// At bins of 500 about one value in ninety is sent. 64 values become one word of bits; its first
// two set bits are written as codes whether they exist or not, and the end moves by the population
// count, so that only "more than two in 64" is a branch, and rarely taken.
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cassert>
#include <cstring>

#include "kernel/bin_select.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/long_bins.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernel/bin_select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

using Layout = BinCode<uint16_t>;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

// A bin is read twice: G alone, then G, now in cache, with `fresh`. Left to itself the processor
// fetches one of the two at a time. So the first look fetches the bin's `fresh`, and the second
// look fetches G this many values ahead: together 1.1 instead of 1.4 times the reading alone.
constexpr size_t kAhead = 1024;

// The largest |x[i]| in all lanes; meanwhile fetches `next`, as long as x. REQUIRES: n > 0.
HWY_INLINE V AbsMax(const float* HWY_RESTRICT x, const float* HWY_RESTRICT next, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V m0 = hn::Zero(d), m1 = hn::Zero(d);
  if (n < lanes) {
    for (size_t i = 0; i < n; ++i) m0 = hn::Max(m0, hn::Abs(hn::Set(d, x[i])));
    return m0;
  }
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    hwy::Prefetch(next + i);
    hwy::Prefetch(next + i + 16);
    for (size_t k = 0; k < 32; k += 2 * lanes) {
      m0 = hn::Max(m0, hn::Abs(hn::LoadU(d, x + i + k)));
      m1 = hn::Max(m1, hn::Abs(hn::LoadU(d, x + i + k + lanes)));
    }
  }
  for (; i + lanes <= n; i += lanes) m0 = hn::Max(m0, hn::Abs(hn::LoadU(d, x + i)));
  m1 = hn::Max(m1, hn::Abs(hn::LoadU(d, x + n - lanes)));  // looking twice does no harm
  return hn::MaxOfLanes(d, hn::Max(m0, m1));
}

// Bit i: value i of n is selected. Reads kWord values. REQUIRES: 0 < n <= kWord.
HWY_INLINE uint64_t SelectWord(const float* HWY_RESTRICT g, const float* HWY_RESTRICT fresh,
                               V factor, V max, size_t n) {
  const D d;
  uint64_t word = 0;
  HWY_UNROLL(16)
  for (size_t i = 0; i < kWord; i += hn::Lanes(d))
    word |= Chosen(d, hn::LoadU(d, g + i), hn::LoadU(d, fresh + i), factor, max) << i;
  return word & (~uint64_t{0} >> (kWord - n));
}

HWY_INLINE void PutCode(const float* g, size_t i, size_t offset, std::byte* out) {
  uint32_t bits;
  std::memcpy(&bits, g + i, sizeof bits);
  const auto code = static_cast<uint16_t>((offset + i) | ((bits >> 17) & Layout::kNegative));
  std::memcpy(out, &code, sizeof code);
}

// Writes the codes of `word`, the first kAlways of them in any case. Returns where they end.
template <size_t kAlways>
HWY_INLINE std::byte* PutCodes(uint64_t word, const float* g, size_t offset, std::byte* out) {
  std::byte* const end = out + static_cast<size_t>(std::popcount(word)) * sizeof(uint16_t);
  for (size_t k = 0; k < kAlways; ++k, word &= word - 1, out += sizeof(uint16_t))
    PutCode(g, static_cast<size_t>(std::countr_zero(word)), offset, out);
  for (; word != 0; word &= word - 1, out += sizeof(uint16_t))
    PutCode(g, static_cast<size_t>(std::countr_zero(word)), offset, out);
  return end;
}

BinSelection Select(const float* HWY_RESTRICT g, const float* HWY_RESTRICT fresh, float factor,
                    size_t count, size_t bin, std::byte* out) {
  const auto s = hn::Set(D(), factor);
  std::byte* at = out;
  BinSelection result;
  BinSum max_sum;
  for (size_t begin = 0; begin < count; begin += bin) {
    const size_t end = HWY_MIN(begin + bin, count);
    const V max = AbsMax(g + begin, fresh + begin, end - begin);
    max_sum.add(hn::GetLane(max));
    std::byte* const first = at;
    for (size_t i = begin; i < end; i += kWord) {
      const size_t n = HWY_MIN(kWord, end - i);
      if (i + kAhead + kWord <= count) {
        for (size_t k = 0; k < kWord; k += 16) hwy::Prefetch(g + i + kAhead + k);
        // An empty word reads g[i + 64]. Writes stay inside `out`: there are never more codes than
        // values before, and more than two values are to come.
        const uint64_t word = SelectWord(g + i, fresh + i, s, max, n);
        at = PutCodes<2>(word, g + i, i - begin, at);
      } else {
        HWY_ALIGN float last_g[kWord] = {}, last_fresh[kWord] = {};
        std::memcpy(last_g, g + i, n * sizeof(float));
        std::memcpy(last_fresh, fresh + i, n * sizeof(float));
        const uint64_t word = SelectWord(last_g, last_fresh, s, max, n);
        at = PutCodes<0>(word, last_g, i - begin, at);
      }
    }
    result.kept += static_cast<size_t>(at - first) / sizeof(uint16_t);
    if (at == first) {
      const uint16_t empty = Layout::kEmpty;
      std::memcpy(at, &empty, sizeof empty);
      at += sizeof empty;
    }
    at[-1] |= std::byte{Layout::kLast >> 8};
  }
  result.size = static_cast<size_t>(at - out);
  result.max_sum = max_sum.sum();
  return result;
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(Select);
}  // namespace

BinSelection select_long_bins(std::span<const float> g, std::span<const float> fresh, float factor,
                              size_t bin, std::span<std::byte> codes) noexcept {
  assert(bin > kMaxByteBin && bin <= kMaxBin);
  return HWY_DYNAMIC_DISPATCH(Select)(g.data(), fresh.data(), factor, g.size(), bin, codes.data());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
