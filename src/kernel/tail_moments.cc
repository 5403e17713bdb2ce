// Masked sums, compaction and sums of logarithms: the passes of a tail fit.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/tail_moments.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "kernel/compact_order.h"
#include "kernel/log_total.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/tail_moments.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernel/fixed_lanes-inl.h"
#include "kernel/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

using VI = hn::Vec<DI>;

static_assert(kChunk == kTailChunk);

// Adds in float for a block, then in double: half the work of doubles throughout. The excess of a
// block is off by 1e-7 of itself at most, either way.
struct TailLanes {
  VF threshold, unit;
  VF near_sum[kVectors], near_square_sum[kVectors];  // of a block
  VD sum[2 * kVectors], square_sum[2 * kVectors];    // of a chunk
  VI below;                                          // minus how many, in each lane of a vector
  VF smallest;

  HWY_INLINE void clear() {
    for (VF& s : near_sum) s = hn::Zero(DF());
    for (VF& s : near_square_sum) s = hn::Zero(DF());
    for (VD& s : sum) s = hn::Zero(DD());
    for (VD& s : square_sum) s = hn::Zero(DD());
    below = hn::Zero(DI());
    smallest = hn::Inf(DF());
  }

  // A value that is not above leaves an excess of zero, which changes no sum.
  HWY_INLINE void add(size_t v, VF x) {
    const VF magnitude = hn::Abs(x);
    const auto above = hn::Gt(magnitude, threshold);
    const VF excess = hn::Mul(hn::Sub(hn::Max(magnitude, threshold), threshold), unit);
    below = hn::Add(below, hn::BitCast(DI(), hn::VecFromMask(DF(), above)));
    smallest = hn::Min(smallest, hn::IfThenElse(above, magnitude, hn::Inf(DF())));
    near_sum[v] = hn::Add(near_sum[v], excess);
    near_square_sum[v] = hn::Add(near_square_sum[v], hn::Mul(excess, excess));
  }

  HWY_INLINE void settle() {
    settle(near_sum, sum);
    settle(near_square_sum, square_sum);
  }

  HWY_INLINE void flush(TailMoments& total) const {
    total.sum += FoldSum(sum);
    total.square_sum += FoldSum(square_sum);
    HWY_ALIGN float least[kStep];
    HWY_ALIGN int32_t minus[kStep];
    hn::Store(smallest, DF(), least);
    hn::Store(below, DI(), minus);
    for (const float magnitude : least) total.smallest = std::min(total.smallest, magnitude);
    for (const int32_t count : minus) total.count += static_cast<size_t>(-count);
  }

 private:
  static HWY_INLINE void settle(VF* near, VD* far) {
    for (size_t v = 0; v < kVectors; ++v) {
      far[2 * v] = hn::Add(far[2 * v], WidenLower(near[v]));
      far[2 * v + 1] = hn::Add(far[2 * v + 1], WidenUpper(near[v]));
      near[v] = hn::Zero(DF());
    }
  }
};

TailMoments Tail(const float* x, size_t count, float threshold, float unit) {
  TailLanes lanes;
  lanes.threshold = hn::Set(DF(), threshold);
  lanes.unit = hn::Set(DF(), unit);
  TailMoments total{.smallest = std::numeric_limits<float>::infinity()};
  ReduceChunks(
      count, [x](size_t i) HWY_ATTR { return hn::LoadU(DF(), x + i); },
      [x](size_t i) { return x[i]; }, lanes, total, x);
  return total;
}

// The sums of kBlock values, and the mask of each group while its values are in cache. `at` is the
// position of the first.
template <size_t kBurst>
HWY_INLINE void TailBlock(const float* HWY_RESTRICT block, size_t at, const MagnitudeAbove& test,
                          TailLanes& lanes, std::span<uint32_t> positions, Selection& listed) {
  for (size_t i = 0; i < kBlock; i += kGroup) {
    for (size_t j = i; j < i + kGroup; j += kLanes) {
      hwy::Prefetch(block + j + kAhead);
      for (size_t v = 0; v < kVectors; ++v) lanes.add(v, hn::LoadU(DF(), block + j + v * kStep));
    }
    if (HWY_UNLIKELY(listed.next < at + i)) continue;  // the list is full
    const uint64_t left = Append<kBurst>(GroupMask(block + i, test), static_cast<uint32_t>(at + i),
                                         positions, listed.kept);
    listed.next = at + i + (left == 0 ? kGroup : static_cast<size_t>(std::countr_zero(left)));
  }
}

TailMoments TailAndList(const float* x, size_t count, float threshold, float unit,
                        int32_t listed_above, std::span<uint32_t> positions, float* kept,
                        Selection& listed) {
  TailLanes lanes;
  lanes.threshold = hn::Set(DF(), threshold);
  lanes.unit = hn::Set(DF(), unit);
  TailMoments total{.smallest = std::numeric_limits<float>::infinity()};
  const MagnitudeAbove test{listed_above};
  HWY_ALIGN float padded[kBlock] = {};
  bool dense = false;
  for (size_t begin = 0; begin < count; begin += kChunk) {
    const size_t end = std::min(begin + kChunk, count);
    lanes.clear();
    for (size_t i = begin; i < end; i += kBlock) {
      const float* block = x + i;
      if (end - i < kBlock) {  // zeros change no sum and are above nothing
        std::copy(x + i, x + end, padded);
        block = padded;
      }
      const size_t before = listed.kept;
      if (dense)
        TailBlock<8>(block, i, test, lanes, positions, listed);
      else
        TailBlock<4>(block, i, test, lanes, positions, listed);
      dense = listed.kept - before > kBlock / 20;
      for (size_t j = before; j < listed.kept; ++j) kept[j] = x[positions[j]];
      lanes.settle();
    }
    lanes.flush(total);
  }
  listed.next = std::min(listed.next, count);
  return total;
}

// Highway's Compress is a table lookup too below AVX-512, but its table is a local that GCC 12
// copies to the stack each time: 5.6 ns a value instead of 0.2.
template <class V>
HWY_INLINE V CompactLanes(V v, hn::Mask<DF> mask, size_t bits) {
#if HWY_TARGET <= HWY_AVX3
  (void)bits;
  return hn::Compress(v, hn::RebindMask(hn::DFromV<V>(), mask));
#else
  (void)mask;
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint8_t, DF> d8;
  const auto order = hn::PromoteTo(du, hn::LoadU(d8, kCompactOrders[bits].data()));
  return hn::TableLookupLanes(v, hn::IndicesFromVec(hn::DFromV<V>(), order));
#endif
}

// Whole vectors are stored: never past what has been read, since the end of what is kept is never
// ahead of the vector just loaded.
size_t Compact(const float* x, const uint32_t* positions, size_t count, float threshold,
               float* kept, uint32_t* kept_positions) {
  const hn::RebindToUnsigned<DF> du;
  const auto key = hn::Set(DF(), threshold);
  size_t found = 0;
  size_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const VF values = hn::LoadU(DF(), x + i);
    const auto above = hn::Gt(hn::Abs(values), key);
    uint8_t stored[8] = {};  // StoreMaskBits may write eight bytes
    hn::StoreMaskBits(DF(), above, stored);
    const size_t bits = stored[0];
    if (positions != nullptr) {
      const auto at = hn::LoadU(du, positions + i);
      hn::StoreU(CompactLanes(at, above, bits), du, kept_positions + found);
    }
    hn::StoreU(CompactLanes(values, above, bits), DF(), kept + found);
    found += hn::CountTrue(DF(), above);
  }
  for (; i < count; ++i) {
    const bool above = std::abs(x[i]) > threshold;
    if (positions != nullptr) kept_positions[found] = positions[i];
    kept[found] = x[i];
    found += above;
  }
  return found;
}

static_assert(kLogLanes == kLanes);

// One multiplication per value: log_total.h says why.
struct LogLanes {
  using DU64 = hn::RebindToUnsigned<DD>;
  VD guard, per_unit;
  VD product[2 * kVectors];
  hn::Vec<DU64> exponents[2 * kVectors];  // biased

  HWY_INLINE void clear() {
    for (VD& p : product) p = hn::Set(DD(), 1.0);
    for (auto& e : exponents) e = hn::Zero(DU64());
  }

  HWY_INLINE void add(size_t v, VF x) {
    const VF magnitude = hn::Abs(x);
    add_wide(2 * v, WidenLower(magnitude));
    add_wide(2 * v + 1, WidenUpper(magnitude));
  }

  HWY_INLINE void settle() {}

  HWY_INLINE void flush(LogTotal& total) const {
    LogChunk chunk{};
    HWY_ALIGN uint64_t exponent[kLanes];
    for (size_t v = 0; v < 2 * kVectors; ++v) {
      hn::StoreU(product[v], DD(), chunk.products + v * kHalf);
      hn::Store(exponents[v], DU64(), exponent + v * kHalf);
    }
    for (const uint64_t sum : exponent) chunk.exponents += sum;
    total.add(chunk);
  }

 private:
  static constexpr int kMantissaBits = 52;
  static constexpr uint64_t kBias = 1023;

  HWY_INLINE void add_wide(size_t v, VD magnitude) {
    const DU64 du;
    const auto bits = hn::BitCast(du, hn::Mul(hn::Add(magnitude, guard), per_unit));
    exponents[v] = hn::Add(exponents[v], hn::ShiftRight<kMantissaBits>(bits));
    const auto fraction = hn::And(bits, hn::Set(du, (uint64_t{1} << kMantissaBits) - 1));
    const auto mantissa = hn::Or(fraction, hn::Set(du, kBias << kMantissaBits));
    product[v] = hn::Mul(product[v], hn::BitCast(DD(), mantissa));
  }
};

double LogSum(const float* x, size_t count, double guard, double unit) {
  LogLanes lanes;
  lanes.guard = hn::Set(DD(), guard);
  lanes.per_unit = hn::Set(DD(), 1 / unit);
  const size_t whole = count - count % kLanes;  // a padding zero would have a logarithm
  LogTotal total;
  ReduceChunks(
      whole, [x](size_t i) HWY_ATTR { return hn::LoadU(DF(), x + i); },
      [x](size_t i) { return x[i]; }, lanes, total, x);
  return total.sum(whole, {x + whole, count - whole}, guard, unit);
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(Tail);
HWY_EXPORT(TailAndList);
HWY_EXPORT(Compact);
HWY_EXPORT(LogSum);

// Scaled so that the largest lies in [1, 2), squares of excesses neither overflow nor vanish; a
// power of two costs no digit.
int exponent_of(float largest) noexcept {
  return largest > 0 ? std::max(std::ilogb(largest), -126) : 0;
}

}  // namespace

float tail_unit(float largest) noexcept { return std::ldexp(1.0f, -exponent_of(largest)); }

TailMoments unscaled(TailMoments scaled, float largest) noexcept {
  const int exponent = exponent_of(largest);
  scaled.sum = std::ldexp(scaled.sum, exponent);
  scaled.square_sum = std::ldexp(scaled.square_sum, 2 * exponent);
  return scaled;
}

TailMoments tail_moments(std::span<const float> values, float threshold, float largest) noexcept {
  return unscaled(
      HWY_DYNAMIC_DISPATCH(Tail)(values.data(), values.size(), threshold, tail_unit(largest)),
      largest);
}

TailMoments tail_moments_and_list(std::span<const float> values, float threshold, float largest,
                                  float listed_above, std::span<uint32_t> positions,
                                  std::span<float> kept, Selection& listed) noexcept {
  assert(values.size() <= (uint64_t{1} << 32) && kept.size() >= positions.size());
  listed = {};
  return unscaled(HWY_DYNAMIC_DISPATCH(TailAndList)(
                      values.data(), values.size(), threshold, tail_unit(largest),
                      std::bit_cast<int32_t>(listed_above), positions, kept.data(), listed),
                  largest);
}

size_t compact_above(std::span<const float> values, std::span<const uint32_t> positions,
                     float threshold, std::span<float> kept,
                     std::span<uint32_t> kept_positions) noexcept {
  assert(kept.size() >= values.size() && kept_positions.size() >= positions.size());
  assert(positions.empty() || positions.size() == values.size());
  return HWY_DYNAMIC_DISPATCH(Compact)(
      values.data(), positions.empty() ? nullptr : positions.data(), values.size(), threshold,
      kept.data(), kept_positions.data());
}

double log_sum(std::span<const float> values, double guard, double unit) noexcept {
  return HWY_DYNAMIC_DISPATCH(LogSum)(values.data(), values.size(), guard, unit);
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
