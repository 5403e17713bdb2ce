// AdaComp's selection in bins of up to 63 values, with codes of one byte.
//
// At bins of 50 about one value in ten is sent, so that almost every group of eight has some and
// any branch on the data is a coin toss. There is none: the codes of a group are moved to its front
// by a table lookup, all eight are stored, and the next group overwrites those that were not
// selected.
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cassert>
#include <cstring>

#include "kernel/bin_select.h"
#include "kernel/compact_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/short_bins.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernel/bin_select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

using D = hn::CappedTag<float, 8>;  // a group at most
using V = hn::Vec<D>;

// Values of `fresh` that are fetched early. The largest |G| of a bin is looked for first, so that
// reads of `fresh` come in bursts, which the processor does not foresee well.
constexpr size_t kAhead = 256;

// Eight values of G from `i` on. Those of the last group that belong to the next bin become zero,
// which is never selected; `keep` has the bits of the others set.
template <size_t kGroups>
HWY_INLINE V LoadKept(const float* g, size_t i, const uint32_t* keep) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const auto values = hn::LoadU(d, g + i);
  if (i + 8 < 8 * kGroups) return values;
  return hn::And(values, hn::BitCast(d, hn::Load(du, keep + i % 8)));
}

// Codes of one bin of kGroups groups of eight, the last of which may be partial; returns where they
// end. Reads and writes all 8 * kGroups values and bytes.
template <size_t kGroups>
HWY_INLINE std::byte* PutBin(const float* HWY_RESTRICT g, const float* HWY_RESTRICT fresh, V factor,
                             const uint32_t* keep, BinSum& max_sum, std::byte* out) {
  const D d;
  const hn::FixedTag<uint8_t, 8> d8;
  const size_t lanes = hn::Lanes(d);
  V largest[2] = {hn::Zero(d), hn::Zero(d)};
  HWY_UNROLL(16)
  for (size_t i = 0; i < 8 * kGroups; i += lanes) {
    V& chain = largest[i / lanes % 2];
    chain = hn::Max(chain, hn::Abs(LoadKept<kGroups>(g, i, keep)));
  }
  const V max = hn::MaxOfLanes(d, hn::Max(largest[0], largest[1]));
  max_sum.add(hn::GetLane(max));

  HWY_UNROLL(8)
  for (size_t i = 0; i < 8 * kGroups; i += 8) {
    uint64_t chosen = 0, negative = 0;
    for (size_t k = 0; k < 8; k += lanes) {
      const V values = LoadKept<kGroups>(g, i + k, keep);
      chosen |= Chosen(d, values, hn::LoadU(d, fresh + i + k), factor, max) << k;
      negative |= BitsOf(d, hn::MaskFromVec(values)) << k;
    }
    const auto all = hn::LoadU(d8, kSignedIndex[negative].data());
    const auto codes = hn::TableLookupBytes(all, hn::LoadU(d8, kSetBits[chosen].data()));
    const auto offset = hn::Set(d8, static_cast<uint8_t>(i));
    hn::StoreU(hn::Add(codes, offset), d8, reinterpret_cast<uint8_t*>(out));
    out += std::popcount(chosen);
  }
  return out;
}

template <size_t kGroups>
BinSelection SelectGroups(const float* HWY_RESTRICT g, const float* HWY_RESTRICT fresh,
                          float factor, size_t count, size_t bin, std::byte* out) {
  const auto s = hn::Set(D(), factor);
  HWY_ALIGN uint32_t keep[8];
  for (size_t i = 0; i < 8; ++i) keep[i] = 8 * (kGroups - 1) + i < bin ? ~uint32_t{0} : 0;
  std::byte* at = out;
  BinSelection result;
  BinSum max_sum;
  for (size_t begin = 0; begin < count; begin += bin) {
    std::byte* const first = at;
    if (begin + kAhead + kWord <= count) {
      for (size_t i = 0; i < 8 * kGroups; i += 16) hwy::Prefetch(fresh + begin + kAhead + i);
      // Stays inside `out`: there are never more codes than values before.
      at = PutBin<kGroups>(g + begin, fresh + begin, s, keep, max_sum, at);
    } else {
      const size_t n = HWY_MIN(bin, count - begin);
      HWY_ALIGN float last_g[kWord] = {}, last_fresh[kWord] = {};
      HWY_ALIGN std::byte codes[kWord];
      std::memcpy(last_g, g + begin, n * sizeof(float));
      std::memcpy(last_fresh, fresh + begin, n * sizeof(float));
      std::byte* const end = PutBin<kGroups>(last_g, last_fresh, s, keep, max_sum, codes);
      std::memcpy(at, codes, static_cast<size_t>(end - codes));
      at += end - codes;
    }
    result.kept += static_cast<size_t>(at - first);
    if (at == first) *at++ = std::byte{BinCode<uint8_t>::kEmpty};
    at[-1] |= std::byte{BinCode<uint8_t>::kLast};
  }
  result.size = static_cast<size_t>(at - out);
  result.max_sum = max_sum.sum();
  return result;
}

BinSelection Select(const float* g, const float* fresh, float factor, size_t count, size_t bin,
                    std::byte* out) {
  using Function = decltype(&SelectGroups<1>);
  static constexpr Function kByGroups[] = {SelectGroups<1>, SelectGroups<2>, SelectGroups<3>,
                                           SelectGroups<4>, SelectGroups<5>, SelectGroups<6>,
                                           SelectGroups<7>, SelectGroups<8>};
  return kByGroups[(bin - 1) / 8](g, fresh, factor, count, bin, out);
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(Select);
}  // namespace

BinSelection select_short_bins(std::span<const float> g, std::span<const float> fresh, float factor,
                               size_t bin, std::span<std::byte> codes) noexcept {
  assert(bin >= 1 && bin <= kMaxByteBin);
  return HWY_DYNAMIC_DISPATCH(Select)(g.data(), fresh.data(), factor, g.size(), bin, codes.data());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
