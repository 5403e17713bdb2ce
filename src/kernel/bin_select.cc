// AdaComp's selection: two looks at each bin while it is in cache, no branch on the data.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "kernel/bin_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/bin_select.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr size_t kWord = 64;  // elements whose selection fits a word

// The largest |x[i]| in all lanes. REQUIRES: n > 0.
HWY_INLINE V AbsMax(const float* HWY_RESTRICT x, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  auto m0 = hn::Zero(d), m1 = hn::Zero(d);
  if (n < lanes) {
    for (size_t i = 0; i < n; ++i) m0 = hn::Max(m0, hn::Abs(hn::Set(d, x[i])));
    return m0;
  }
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = hn::Max(m0, hn::Abs(hn::LoadU(d, x + i)));
    m1 = hn::Max(m1, hn::Abs(hn::LoadU(d, x + i + lanes)));
  }
  if (i + lanes <= n) m0 = hn::Max(m0, hn::Abs(hn::LoadU(d, x + i)));
  m1 = hn::Max(m1, hn::Abs(hn::LoadU(d, x + n - lanes)));  // looking twice does no harm
  return hn::MaxOfLanes(d, hn::Max(m0, m1));
}

// Bit i: element i is selected. Reads whole vectors. REQUIRES: 0 < n <= kWord.
HWY_INLINE uint64_t SelectWord(const float* HWY_RESTRICT g, const float* HWY_RESTRICT fresh,
                               V factor, V max, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  uint64_t word = 0;
  for (size_t i = 0; i < n; i += lanes) {
    const auto gi = hn::LoadU(d, g + i);
    const auto h = hn::Add(gi, hn::Mul(factor, hn::LoadU(d, fresh + i)));
    const auto chosen = hn::And(hn::Ge(hn::Abs(h), max), hn::Ne(gi, hn::Zero(d)));
    uint64_t bits = 0;
    hn::StoreMaskBits(d, chosen, reinterpret_cast<uint8_t*>(&bits));
    word |= bits << i;
  }
  return word & (~uint64_t{0} >> (kWord - n));
}

template <class Code>
HWY_INLINE void PutCode(const float* g, size_t i, size_t offset, std::byte* out) {
  constexpr int kSignShift = 32 - (std::numeric_limits<Code>::digits - 1);
  uint32_t bits;
  std::memcpy(&bits, g + i, sizeof bits);
  const Code code =
      static_cast<Code>((offset + i) | ((bits >> kSignShift) & BinCode<Code>::kNegative));
  std::memcpy(out, &code, sizeof code);
}

// Writes the codes of `word` and returns where they end. The first kAhead are written whether they
// are there or not, because a misprediction costs more than they do.
template <class Code, size_t kAhead>
HWY_INLINE std::byte* PutCodes(uint64_t word, const float* g, size_t offset, std::byte* out) {
  std::byte* const end = out + static_cast<size_t>(std::popcount(word)) * sizeof(Code);
  for (size_t k = 0; k < kAhead; ++k) {
    PutCode<Code>(g, static_cast<size_t>(std::countr_zero(word)), offset, out);
    word &= word - 1;
    out += sizeof(Code);
  }
  for (; word != 0; word &= word - 1, out += sizeof(Code))
    PutCode<Code>(g, static_cast<size_t>(std::countr_zero(word)), offset, out);
  return end;
}

template <class Code, size_t kAhead>
BinSelection Select(const float* HWY_RESTRICT g, const float* HWY_RESTRICT fresh, float factor,
                    size_t count, size_t bin, std::byte* out) {
  const D d;
  const auto s = hn::Set(d, factor);
  std::byte* at = out;
  BinSelection result;
  for (size_t begin = 0; begin < count; begin += bin) {
    const size_t end = HWY_MIN(begin + bin, count);
    const auto max = AbsMax(g + begin, end - begin);
    result.max_sum += hn::GetLane(max);
    std::byte* const first = at;
    for (size_t i = begin; i < end; i += kWord) {
      const size_t n = HWY_MIN(kWord, end - i);
      if (i + kWord < count) {
        // Reads up to g[i + 64]. Writes stay inside, because there are never more codes than values
        // before and at least kAhead values to come.
        const uint64_t word = SelectWord(g + i, fresh + i, s, max, n);
        at = PutCodes<Code, kAhead>(word, g + i, i - begin, at);
      } else {
        HWY_ALIGN float last_g[kWord] = {}, last_fresh[kWord] = {};
        std::memcpy(last_g, g + i, n * sizeof(float));
        std::memcpy(last_fresh, fresh + i, n * sizeof(float));
        const uint64_t word = SelectWord(last_g, last_fresh, s, max, n);
        at = PutCodes<Code, 0>(word, last_g, i - begin, at);
      }
    }
    result.kept += static_cast<size_t>(at - first) / sizeof(Code);
    if (at == first) {
      const Code empty = BinCode<Code>::kEmpty;
      std::memcpy(at, &empty, sizeof(Code));
      at += sizeof(Code);
    } else {
      at[-1] |= std::byte{0x80};  // kLast is the highest bit of the last byte
    }
  }
  result.size = static_cast<size_t>(at - out);
  return result;
}

BinSelection SelectBytes(const float* g, const float* fresh, float factor, size_t count, size_t bin,
                         std::byte* out) {
  return Select<uint8_t, 8>(g, fresh, factor, count, bin, out);
}
BinSelection SelectWords(const float* g, const float* fresh, float factor, size_t count, size_t bin,
                         std::byte* out) {
  return Select<uint16_t, 2>(g, fresh, factor, count, bin, out);
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(SelectBytes);
HWY_EXPORT(SelectWords);
}  // namespace

BinSelection select_bins(std::span<const float> g, std::span<const float> fresh, float factor,
                         size_t bin, std::span<std::byte> codes) noexcept {
  assert(fresh.size() == g.size() && bin >= 1 && bin <= kMaxBin);
  assert(codes.size() >= bin_code_size(bin) * g.size());
  if (bin_code_size(bin) == 1)
    return HWY_DYNAMIC_DISPATCH(SelectBytes)(g.data(), fresh.data(), factor, g.size(), bin,
                                             codes.data());
  return HWY_DYNAMIC_DISPATCH(SelectWords)(g.data(), fresh.data(), factor, g.size(), bin,
                                           codes.data());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
