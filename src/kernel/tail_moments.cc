// Masked sums, compaction and sums of logarithms: the passes of a tail fit.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/tail_moments.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/tail_moments.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernel/fixed_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;

static_assert(kChunk == kTailChunk);

struct TailLanes {
  VF threshold;
  VD sum[2 * kVectors];
  VD square_sum[2 * kVectors];
  VI below[kVectors];  // minus how many
  VF smallest[kVectors];

  HWY_INLINE void clear() {
    for (VD& s : sum) s = hn::Zero(DD());
    for (VD& s : square_sum) s = hn::Zero(DD());
    for (VI& b : below) b = hn::Zero(DI());
    for (VF& s : smallest) s = hn::Inf(DF());
  }

  // A value that is not above leaves an excess of zero, which changes no sum.
  HWY_INLINE void add(size_t v, VF x) {
    const VF magnitude = hn::Abs(x);
    const auto above = hn::Gt(magnitude, threshold);
    const VF excess = hn::Sub(hn::Max(magnitude, threshold), threshold);
    below[v] = hn::Add(below[v], hn::BitCast(DI(), hn::VecFromMask(DF(), above)));
    smallest[v] = hn::Min(smallest[v], hn::IfThenElse(above, magnitude, hn::Inf(DF())));
    add_wide(2 * v, WidenLower(excess));
    add_wide(2 * v + 1, WidenUpper(excess));
  }

  HWY_INLINE void flush(TailMoments& total) const {
    total.sum += FoldSum(sum);
    total.square_sum += FoldSum(square_sum);
    HWY_ALIGN float least[kStep];
    HWY_ALIGN int32_t minus[kStep];
    for (size_t v = 0; v < kVectors; ++v) {
      hn::Store(smallest[v], DF(), least);
      hn::Store(below[v], DI(), minus);
      for (const float magnitude : least) total.smallest = std::min(total.smallest, magnitude);
      for (const int32_t count : minus) total.count += static_cast<size_t>(-count);
    }
  }

 private:
  HWY_INLINE void add_wide(size_t v, VD excess) {
    sum[v] = hn::Add(sum[v], excess);
    square_sum[v] = hn::MulAdd(excess, excess, square_sum[v]);  // exact square: rounds once
  }
};

TailMoments Tail(const float* x, size_t count, float threshold) {
  TailLanes lanes;
  lanes.threshold = hn::Set(DF(), threshold);
  TailMoments total{.smallest = std::numeric_limits<float>::infinity()};
  ReduceChunks(
      count, [x](size_t i) HWY_ATTR { return hn::LoadU(DF(), x + i); },
      [x](size_t i) { return x[i]; }, lanes, total);
  return total;
}

// CompressStore may write a whole vector: never past what has been read, since the end of what is kept
// is never ahead of the vector just loaded.
size_t Compact(const float* x, const uint32_t* positions, size_t count, float threshold,
               float* kept, uint32_t* kept_positions) {
  const hn::RebindToUnsigned<DF> du;
  const auto key = hn::Set(DF(), threshold);
  size_t found = 0;
  size_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const VF values = hn::LoadU(DF(), x + i);
    const auto above = hn::Gt(hn::Abs(values), key);
    if (positions != nullptr) {
      const auto at = hn::LoadU(du, positions + i);
      hn::CompressStore(at, hn::RebindMask(du, above), du, kept_positions + found);
    }
    found += hn::CompressStore(values, above, DF(), kept + found);
  }
  for (; i < count; ++i) {
    const bool above = std::abs(x[i]) > threshold;
    if (positions != nullptr) kept_positions[found] = positions[i];
    kept[found] = x[i];
    found += above;
  }
  return found;
}

// A logarithm is the exponent plus the logarithm of the mantissa, and the logarithms of mantissas add up
// as their product: one multiplication per value, one real logarithm per lane and chunk. A product of
// kChunk / kLanes = 512 mantissas below 2 stays below 2^512.
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

  struct Total {
    double mantissas = 0;  // logarithms
    uint64_t twos = 0;     // exponents, biased: whole numbers, so that no digit is lost
  };

  HWY_INLINE void flush(Total& total) const {
    HWY_ALIGN double lane[kLanes];
    HWY_ALIGN uint64_t exponent[kLanes];
    for (size_t v = 0; v < 2 * kVectors; ++v) {
      hn::Store(product[v], DD(), lane + v * kHalf);
      hn::Store(exponents[v], DU64(), exponent + v * kHalf);
    }
    for (size_t i = 0; i < kLanes; ++i) {
      total.twos += exponent[i];
      total.mantissas += std::log(lane[i]);
    }
  }

  static constexpr int kMantissaBits = 52;
  static constexpr uint64_t kBias = 1023;

 private:
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
  LogLanes::Total total;
  ReduceChunks(
      whole, [x](size_t i) HWY_ATTR { return hn::LoadU(DF(), x + i); },
      [x](size_t i) { return x[i]; }, lanes, total);
  const auto twos = static_cast<int64_t>(total.twos - whole * LogLanes::kBias);
  double sum = total.mantissas + static_cast<double>(twos) * std::numbers::ln2;
  for (size_t i = whole; i < count; ++i) sum += std::log((std::abs(x[i]) + guard) * (1 / unit));
  return sum;
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(Tail);
HWY_EXPORT(Compact);
HWY_EXPORT(LogSum);
}  // namespace

TailMoments tail_moments(std::span<const float> values, float threshold) noexcept {
  return HWY_DYNAMIC_DISPATCH(Tail)(values.data(), values.size(), threshold);
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
