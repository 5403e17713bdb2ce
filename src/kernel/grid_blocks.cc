// Grids per block. A block is read twice, from cache if it is short, and `rest` is written once.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/grid_blocks.h"

#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel/half_float.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/grid_blocks.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernel/block_statistics-inl.h"
#include "kernel/code_values-inl.h"
#include "kernel/fixed_lanes-inl.h"
#include "kernel/parts.h"
#include "kernel/random_bits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

constexpr float kLeastStep = 0x1p-126f;  // its inverse is finite

// The grid of one block.
struct Grid {
  float mid = 0;
  float step = 0;
  float inverse = 0;
  float least = 0, most = 0;  // of t
  uint16_t half = 0;          // kHalf: the scale as it is sent
};

struct PowerSums {
  double first = 0, second = 0;
  float max = 0;
};

// Sums of values and of squares, which are exact in double, and the largest magnitude.
struct PowerLanes {
  VD first[2 * kVectors], second[2 * kVectors];
  VF max;

  HWY_INLINE void clear() {
    for (VD& sum : first) sum = hn::Zero(DD());
    for (VD& sum : second) sum = hn::Zero(DD());
    max = hn::Zero(DF());
  }
  HWY_INLINE void add(size_t v, VF x) {
    max = hn::Max(max, hn::Abs(x));
    add_wide(2 * v, WidenLower(x));
    add_wide(2 * v + 1, WidenUpper(x));
  }
  HWY_INLINE void settle() {}
  HWY_INLINE void flush(PowerSums& total) const {
    total.first += FoldSum(first);
    total.second += FoldSum(second);
    total.max = std::max(total.max, hn::GetLane(hn::MaxOfLanes(DF(), max)));
  }

 private:
  HWY_INLINE void add_wide(size_t v, VD x) {
    first[v] = hn::Add(first[v], x);
    second[v] = hn::MulAdd(x, x, second[v]);
  }
};

HWY_INLINE PowerSums SumsOf(const float* x, size_t count) {
  PowerLanes lanes;
  PowerSums total;
  ReduceChunks(
      count, [x](size_t i) HWY_ATTR { return hn::LoadU(DF(), x + i); },
      [x](size_t i) { return x[i]; }, lanes, total, x);
  return total;
}

// The scale of kMax, kNorm and kClip.
HWY_INLINE float ScaleOf(const float* x, size_t count, const GridBlocks& blocks) {
  if (blocks.rule == GridRule::kMax) return AbsMax(x, count) / blocks.levels;
  const auto n = static_cast<double>(count);
  const PowerSums sums = SumsOf(x, count);
  const float max = sums.max;
  if (blocks.rule == GridRule::kNorm) {
    const double scale = std::sqrt(sums.second) / blocks.levels;
    return static_cast<float>(std::min<double>(scale, std::numeric_limits<float>::max()));
  }
  const double mean = sums.first / n;
  const double deviation = std::sqrt(std::max(sums.second / n - mean * mean, 0.0));
  const double limit = blocks.clip * deviation;
  // What rounding leaves of the deviation of equal values is no deviation.
  return limit > 1e-6 * max && limit < max ? static_cast<float>(limit) : max;
}

// The grid of kMax, kNorm and kClip with this scale.
HWY_INLINE Grid ScaledGrid(float scale, const GridBlocks& blocks) {
  const float most_code = static_cast<float>(1 << (blocks.bits - 1)) - 1;
  Grid grid;
  grid.most = blocks.rule == GridRule::kClip ? 1 : blocks.levels;
  grid.least = -grid.most;
  grid.step = scale < kLeastStep ? 0 : scale;
  if (!std::isfinite(grid.step * most_code))
    grid.step = std::numeric_limits<float>::max() / most_code;
  if (!std::isfinite(grid.step * most_code)) grid.step = std::nextafter(grid.step, 0.0f);
  grid.inverse = grid.step == 0 ? 0 : 1 / grid.step;
  return grid;
}

// The binary16 next to `value`, the largest finite one at most.
HWY_INLINE float HalfOf(float value) {
  uint16_t half;
  to_half_saturated({&value, 1}, std::as_writable_bytes(std::span(&half, 1)));
  from_half(std::span<const uint16_t>(&half, 1), std::span(&value, 1));
  return value;
}

HWY_INLINE Grid GridOf(const float* x, size_t count, const GridBlocks& blocks) {
  if (blocks.rule != GridRule::kHalf && blocks.rule != GridRule::kMinMax)
    return ScaledGrid(ScaleOf(x, count, blocks), blocks);
  const auto codes = static_cast<float>(1 << (blocks.bits - 1));  // on either side
  Grid grid{.least = -codes, .most = codes - 1};
  if (blocks.rule == GridRule::kHalf) {
    const float max = AbsMax(x, count);
    to_half_saturated({&max, 1}, std::as_writable_bytes(std::span(&grid.half, 1)));
    const float scale = HalfOf(max);
    grid.step = scale / codes;
    grid.inverse = codes / HalfOf(scale + HalfOf(1e-6f));
    return grid;
  }
  const Range range = MinMax(x, count);
  const float width = range.high - range.low;
  grid.mid = std::isfinite(width) ? range.low + width / 2 : range.low / 2 + range.high / 2;
  grid.step = (range.high / 2 - range.low / 2) / (codes - 0.5f);
  if (grid.step < kLeastStep) grid.step = 0;
  while (!std::isfinite(std::abs(grid.mid) + (codes - 0.5f) * grid.step))
    grid.step = std::nextafter(grid.step, 0.0f);
  grid.inverse = grid.step == 0 ? 0 : 1 / grid.step;
  return grid;
}

// 1.5 * 2^8: adding it to -128 <= t < 128 leaves t, in units of 2^-15, in the low bits.
constexpr float kFixedPoint = 0x1.8p8f;
constexpr int32_t kFixedPointBits = 0x43C00000;

template <bool kShifted, bool kRandom>
struct OnGrid {
  VCodeF mid, step, inverse, least, most;
  VCodeU mask;
  const uint16_t* draws = nullptr;

  void set(const Grid& grid) {
    const CodeF d;
    mid = hn::Set(d, grid.mid);
    step = hn::Set(d, grid.step);
    inverse = hn::Set(d, grid.inverse);
    least = hn::Set(d, grid.least);
    most = hn::Set(d, grid.most);
  }

  HWY_INLINE VCodeU Code(VCodeF x, size_t at, VCodeF* decoded) const {
    const CodeF d;
    const CodeI di;
    const auto half = hn::Set(d, 0.5f);
    VCodeF t = kShifted ? hn::Sub(hn::Mul(hn::Sub(x, mid), inverse), half) : hn::Mul(x, inverse);
    t = hn::Min(hn::Max(t, least), most);
    VCodeF code;
    VCodeU bits;
    if (kRandom) {
      const hn::Rebind<uint16_t, CodeF> d16;
      const auto fixed = hn::Sub(hn::BitCast(di, hn::Add(t, hn::Set(d, kFixedPoint))),
                                 hn::Set(di, kFixedPointBits));
      const auto draw = hn::ShiftRight<1>(hn::PromoteTo(CodeU(), hn::LoadU(d16, draws + at)));
      const auto floor = hn::ShiftRight<15>(hn::Add(fixed, hn::BitCast(di, draw)));
      code = hn::ConvertTo(d, floor);
      bits = hn::BitCast(CodeU(), floor);
    } else {
      const auto whole = hn::Set(d, kWhole);
      const auto rounded = hn::Add(t, whole);
      code = hn::Sub(rounded, whole);
      bits = hn::BitCast(CodeU(), rounded);
    }
    *decoded = kShifted ? hn::Add(mid, hn::Mul(hn::Add(code, half), step)) : hn::Mul(code, step);
    return hn::And(bits, mask);
  }
};

void PutHeader(const Grid& grid, GridRule rule, std::byte* out) {
  if (rule == GridRule::kHalf) {
    std::memcpy(out, &grid.half, sizeof grid.half);
  } else if (rule == GridRule::kMinMax) {
    std::memcpy(out, &grid.mid, sizeof(float));
    std::memcpy(out + sizeof(float), &grid.step, sizeof(float));
  } else {
    std::memcpy(out, &grid.step, sizeof(float));
  }
}

template <bool kShifted, bool kRandom, class Packer>
void Quantise(const Packer& packer, const float* x, size_t count, const GridBlocks& blocks,
              const Dither* dither, const float* scales, std::byte* out, const std::byte* end,
              float* rest) {
  const CodeOrder order;
  Draws draws(kRandom ? dither->key : RandomKey());
  OnGrid<kShifted, kRandom> rule;
  rule.mask = hn::Set(CodeU(), (1u << blocks.bits) - 1);
  for (size_t begin = 0; begin < count; begin += blocks.block) {
    const size_t block_end = std::min(begin + blocks.block, count);
    const Grid grid = scales ? ScaledGrid(scales[begin / blocks.block], blocks)
                             : GridOf(x + begin, block_end - begin, blocks);
    PutHeader(grid, blocks.rule, out);
    out += blocks.header();
    rule.set(grid);
    for (size_t i = begin; i < block_end; i += Draws::kMost) {
      const size_t n = std::min(Draws::kMost, block_end - i);
      if (kRandom) {
        draws.Fill(dither->position + i, n);
        rule.draws = draws.at(0);
      }
      EncodeCodes(rule, order, packer, x + i, n, out, end, rest ? rest + i : nullptr);
      out += packer.size(n);
    }
  }
}

void QuantiseGrid(const float* x, size_t count, const GridBlocks& blocks, const Dither* dither,
                  const float* scales, std::byte* out, size_t size, float* rest) {
  WithPacker(blocks.bits, [=](const auto& packer) HWY_ATTR {
    const std::byte* end = out + size;
    if (blocks.rule == GridRule::kMinMax && dither != nullptr)
      Quantise<true, true>(packer, x, count, blocks, dither, scales, out, end, rest);
    else if (blocks.rule == GridRule::kMinMax)
      Quantise<true, false>(packer, x, count, blocks, dither, scales, out, end, rest);
    else if (dither != nullptr)
      Quantise<false, true>(packer, x, count, blocks, dither, scales, out, end, rest);
    else
      Quantise<false, false>(packer, x, count, blocks, dither, scales, out, end, rest);
  });
}

void GridScales(const float* x, size_t count, const GridBlocks& blocks, float* scales) {
  for (size_t begin = 0; begin < count; begin += blocks.block)
    *scales++ = GridOf(x + begin, std::min(blocks.block, count - begin), blocks).step;
}

template <bool kShifted>
struct FromGrid {
  V8 sign;
  VCodeF mid, step, weight;  // weight is part of the step unless shifted

  HWY_INLINE V8 Check(V8 codes) { return hn::Sub(hn::Xor(codes, sign), sign); }

  template <int kByte>
  HWY_INLINE VCodeF Value(VCodeU words) const {
    const CodeF d;
    const auto top = hn::BitCast(CodeI(), hn::ShiftLeft<24 - 8 * kByte>(words));
    const VCodeF code = hn::ConvertTo(d, hn::ShiftRight<24>(top));
    if (!kShifted) return hn::Mul(code, step);
    const VCodeF on_grid = hn::Mul(hn::Add(code, hn::Set(d, 0.5f)), step);
    return hn::Mul(hn::Add(mid, on_grid), weight);
  }
};

template <bool kShifted, class Packer>
bool Add(const Packer& packer, const std::byte* in, const std::byte* end, const GridBlocks& blocks,
         float weight, float* out, size_t count) {
  const CodeF d;
  const CodeOrder order;
  const auto codes = static_cast<float>(1 << (blocks.bits - 1));
  FromGrid<kShifted> rule;
  rule.sign = hn::Set(D8(), static_cast<uint8_t>(1 << (blocks.bits - 1)));
  rule.weight = hn::Set(d, weight);
  bool ok = true;
  for (size_t begin = 0; begin < count; begin += blocks.block) {
    const size_t n = std::min(blocks.block, count - begin);
    float mid = 0, step;
    if (kShifted) {
      std::memcpy(&mid, in, sizeof mid);
      std::memcpy(&step, in + sizeof mid, sizeof step);
      ok &= std::isfinite(std::abs(mid) + (codes - 0.5f) * step);
    } else {
      float scale;
      from_half({in, sizeof(uint16_t)}, std::span(&scale, 1));
      step = scale / codes;
      ok &= std::isfinite(scale);
    }
    ok &= !std::signbit(step);
    rule.mid = hn::Set(d, mid);
    rule.step = hn::Set(d, kShifted ? step : weight * step);
    in += blocks.header();
    AddCodes(rule, order, packer, in, end, out + begin, n);
    in += packer.size(n);
  }
  return ok;
}

bool AddGrid(const std::byte* in, size_t size, const GridBlocks& blocks, float weight, float* out,
             size_t count) {
  return WithPacker(blocks.bits, [=](const auto& packer) HWY_ATTR {
    if (blocks.rule == GridRule::kMinMax)
      return Add<true>(packer, in, in + size, blocks, weight, out, count);
    return Add<false>(packer, in, in + size, blocks, weight, out, count);
  });
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(QuantiseGrid);
HWY_EXPORT(GridScales);
HWY_EXPORT(AddGrid);
}  // namespace

void quantise_grid(std::span<const float> values, const GridBlocks& blocks, const Dither* dither,
                   std::span<std::byte> bytes, std::span<float> rest,
                   std::span<const float> scales) noexcept {
  assert(bytes.size() == blocks.size(values.size()));
  assert(rest.empty() || rest.size() == values.size());
  assert(scales.empty() || scales.size() == blocks.count(values.size()));
  const auto& quantise = HWY_DYNAMIC_DISPATCH(QuantiseGrid);
  parallel_for(values.size(), part_unit(blocks.block), [&](size_t begin, size_t end) {
    Dither from;
    if (dither != nullptr) from = {.key = dither->key, .position = dither->position + begin};
    quantise(values.data() + begin, end - begin, blocks, dither != nullptr ? &from : nullptr,
             scales.empty() ? nullptr : scales.data() + begin / blocks.block,
             bytes.data() + blocks.size(begin), blocks.size(end - begin), part_of(rest, begin));
  });
}

void grid_scales(std::span<const float> values, const GridBlocks& blocks,
                 std::span<float> scales) noexcept {
  assert(blocks.rule != GridRule::kMinMax && blocks.rule != GridRule::kHalf);
  assert(scales.size() == blocks.count(values.size()));
  const auto& measure = HWY_DYNAMIC_DISPATCH(GridScales);
  parallel_for(values.size(), part_unit(blocks.block), [&](size_t begin, size_t end) {
    measure(values.data() + begin, end - begin, blocks, scales.data() + begin / blocks.block);
  });
}

bool add_grid(std::span<const std::byte> bytes, const GridBlocks& blocks, float weight,
              std::span<float> out) noexcept {
  assert(bytes.size() == blocks.size(out.size()));
  assert(blocks.rule == GridRule::kMinMax || blocks.rule == GridRule::kHalf);
  const auto& add = HWY_DYNAMIC_DISPATCH(AddGrid);
  return all_parts(out.size(), part_unit(blocks.block), [&](size_t begin, size_t end) {
    return add(bytes.data() + blocks.size(begin), blocks.size(end - begin), blocks, weight,
               out.data() + begin, end - begin);
  });
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
