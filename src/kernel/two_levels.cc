// Two levels per block. A block is read twice, then from the L1 cache; `rest` is written once.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/two_levels.h"

#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/two_levels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernel/fetch_early-inl.h"
#include "kernel/fixed_lanes-inl.h"
#include "kernel/parts.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

struct Sums {
  double above = 0;  // of |x|, or of those at least 0
  double below = 0;  // of those below 0
  size_t negatives = 0;
};

// A sum that is kept in float for kBlock values and in double from then on.
struct Sum {
  VF part[kVectors];
  VD whole[2 * kVectors];

  HWY_INLINE void clear() {
    for (VF& lanes : part) lanes = hn::Zero(DF());
    for (VD& lanes : whole) lanes = hn::Zero(DD());
  }
  HWY_INLINE void add(size_t v, VF x) { part[v] = hn::Add(part[v], x); }
  HWY_INLINE void settle() {
    for (size_t v = 0; v < kVectors; ++v) {
      whole[2 * v] = hn::Add(whole[2 * v], WidenLower(part[v]));
      whole[2 * v + 1] = hn::Add(whole[2 * v + 1], WidenUpper(part[v]));
      part[v] = hn::Zero(DF());
    }
  }
};

struct MagnitudeLanes {
  Sum sum;

  HWY_INLINE void clear() { sum.clear(); }
  HWY_INLINE void add(size_t v, VF x) { sum.add(v, hn::Abs(x)); }
  HWY_INLINE void settle() { sum.settle(); }
  HWY_INLINE void flush(Sums& total) const { total.above += FoldSum(sum.whole); }
};

struct SideLanes {
  Sum above, below;
  size_t negatives;

  HWY_INLINE void clear() {
    above.clear();
    below.clear();
    negatives = 0;
  }
  HWY_INLINE void add(size_t v, VF x) {
    const VF zero = hn::Zero(DF());
    above.add(v, hn::Max(x, zero));
    below.add(v, hn::Min(x, zero));
    negatives += hn::CountTrue(DF(), hn::Lt(x, zero));
  }
  HWY_INLINE void settle() {
    above.settle();
    below.settle();
  }
  HWY_INLINE void flush(Sums& total) const {
    total.above += FoldSum(above.whole);
    total.below += FoldSum(below.whole);
    total.negatives += negatives;
  }
};

// Where 32 values of a lane overflow a float.
Sums SumsOfHuge(const float* x, size_t count, LevelRule rule) {
  Sums sums;
  for (size_t i = 0; i < count; ++i) {
    const bool negative = x[i] < 0;
    if (rule == LevelRule::kMagnitude)
      sums.above += std::abs(x[i]);
    else
      (negative ? sums.below : sums.above) += x[i];
    sums.negatives += negative;
  }
  return sums;
}

template <class Lanes>
HWY_INLINE Sums Reduce(const float* x, size_t count) {
  Lanes lanes;
  Sums total;
  ReduceChunks(
      count, [x](size_t i) HWY_ATTR { return hn::LoadU(DF(), x + i); },
      [x](size_t i) { return x[i]; }, lanes, total, x);
  return total;
}

HWY_INLINE Levels LevelsOf(const float* x, size_t count, LevelRule rule) {
  const bool magnitude = rule == LevelRule::kMagnitude;
  Sums sums = magnitude ? Reduce<MagnitudeLanes>(x, count) : Reduce<SideLanes>(x, count);
  if (!std::isfinite(sums.above - sums.below)) sums = SumsOfHuge(x, count, rule);
  const auto mean = [](double sum, size_t of) {
    return of == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(of));
  };
  if (!magnitude)
    return {.high = mean(sums.above, count - sums.negatives),
            .low = mean(sums.below, sums.negatives)};
  const float high = mean(sums.above, count);
  return {.high = high, .low = -high};
}

// Eight values, a byte: one vector, or two of four lanes.
using DByte = hn::CappedTag<float, 8>;
using VByte = hn::Vec<DByte>;
constexpr size_t kByteLanes = hn::MaxLanes(DByte());
constexpr size_t kByteVectors = 8 / kByteLanes;

HWY_INLINE void PackByte(const float* x, VByte high, VByte low, std::byte* out, float* rest) {
  const DByte d;
  uint8_t masks[kByteVectors][8];  // StoreMaskBits may write 8 bytes
  for (size_t v = 0; v < kByteVectors; ++v) {
    const VByte value = hn::LoadU(d, x + v * kByteLanes);
    const auto negative = hn::Lt(value, hn::Zero(d));
    hn::StoreMaskBits(d, negative, masks[v]);
    if (rest != nullptr)
      hn::StoreU(hn::Sub(value, hn::IfThenElse(negative, low, high)), d, rest + v * kByteLanes);
  }
  unsigned bits = masks[0][0];
  if constexpr (kByteVectors == 2) bits |= unsigned{masks[1][0]} << 4;
  *out = static_cast<std::byte>(bits);
}

HWY_INLINE void PackBits(const float* x, size_t count, Levels levels, std::byte* out, float* rest) {
  const DByte d;
  const auto high = hn::Set(d, levels.high), low = hn::Set(d, levels.low);
  size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    FetchEarly(x + i);
    for (size_t j = i; j < i + 32; j += 8)
      PackByte(x + j, high, low, out + j / 8, rest ? rest + j : nullptr);
  }
  for (; i + 8 <= count; i += 8) PackByte(x + i, high, low, out + i / 8, rest ? rest + i : nullptr);
  if (i < count) {
    float last[8] = {};
    std::memcpy(last, x + i, (count - i) * sizeof(float));
    PackByte(last, high, low, out + i / 8, last);
    if (rest != nullptr) std::memcpy(rest + i, last, (count - i) * sizeof(float));
  }
}

HWY_INLINE void AddByte(unsigned bits, VByte high, VByte low, float* out) {
  const DByte d;
  for (size_t v = 0; v < kByteVectors; ++v) {
    const uint8_t of_vector[8] = {static_cast<uint8_t>(bits >> v * kByteLanes)};
    const VByte level = hn::IfThenElse(hn::LoadMaskBits(d, of_vector), low, high);
    float* to = out + v * kByteLanes;
    hn::StoreU(hn::Add(hn::LoadU(d, to), level), d, to);
  }
}

HWY_INLINE void AddBits(const std::byte* bits, Levels levels, float* out, size_t count) {
  const DByte d;
  const auto high = hn::Set(d, levels.high), low = hn::Set(d, levels.low);
  size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    FetchEarly(out + i);
    for (size_t j = i; j < i + 32; j += 8)
      AddByte(std::to_integer<unsigned>(bits[j / 8]), high, low, out + j);
  }
  for (; i + 8 <= count; i += 8)
    AddByte(std::to_integer<unsigned>(bits[i / 8]), high, low, out + i);
  if (i < count) {
    float last[8] = {};
    std::memcpy(last, out + i, (count - i) * sizeof(float));
    AddByte(std::to_integer<unsigned>(bits[i / 8]), high, low, last);
    std::memcpy(out + i, last, (count - i) * sizeof(float));
  }
}

void PackLevels(const float* x, size_t count, Levels levels, std::byte* bits, float* rest) {
  PackBits(x, count, levels, bits, rest);
}

void AddLevelBits(const std::byte* bits, Levels levels, float* out, size_t count) {
  AddBits(bits, levels, out, count);
}

void EncodeLevels(const float* x, size_t count, LevelBlocks blocks, std::byte* out, float* rest) {
  const size_t header = blocks.header();
  for (size_t begin = 0; begin < count; begin += blocks.block) {
    const size_t n = std::min(blocks.block, count - begin);
    const Levels levels = LevelsOf(x + begin, n, blocks.rule);
    std::memcpy(out, &levels.high, sizeof(float));
    if (blocks.rule == LevelRule::kMeans)
      std::memcpy(out + sizeof(float), &levels.low, sizeof(float));
    PackBits(x + begin, n, levels, out + header, rest ? rest + begin : nullptr);
    out += header + code_bytes(n, 1);
  }
}

bool AddLevels(const std::byte* in, LevelBlocks blocks, float weight, float* out, size_t count) {
  const size_t header = blocks.header();
  bool ok = true;
  for (size_t begin = 0; begin < count; begin += blocks.block) {
    const size_t n = std::min(blocks.block, count - begin);
    Levels levels;
    std::memcpy(&levels.high, in, sizeof(float));
    levels.low = -levels.high;
    if (blocks.rule == LevelRule::kMeans)
      std::memcpy(&levels.low, in + sizeof(float), sizeof(float));
    ok &= std::isfinite(levels.high) && !std::signbit(levels.high) && std::isfinite(levels.low) &&
          levels.low <= 0;
    AddBits(in + header, {.high = weight * levels.high, .low = weight * levels.low}, out + begin,
            n);
    in += header + code_bytes(n, 1);
  }
  return ok;
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(PackLevels);
HWY_EXPORT(AddLevelBits);
HWY_EXPORT(EncodeLevels);
HWY_EXPORT(AddLevels);
}  // namespace

void pack_levels(std::span<const float> values, Levels levels, std::span<std::byte> bits,
                 std::span<float> rest) noexcept {
  assert(bits.size() == code_bytes(values.size(), 1));
  assert(rest.empty() || rest.size() == values.size());
  const auto& pack = HWY_DYNAMIC_DISPATCH(PackLevels);
  parallel_for(values.size(), kPartUnit, [&](size_t begin, size_t end) {
    pack(values.data() + begin, end - begin, levels, bits.data() + begin / 8, part_of(rest, begin));
  });
}

void add_level_bits(std::span<const std::byte> bits, Levels levels, std::span<float> out) noexcept {
  assert(bits.size() == code_bytes(out.size(), 1));
  const auto& add = HWY_DYNAMIC_DISPATCH(AddLevelBits);
  parallel_for(out.size(), kPartUnit, [&](size_t begin, size_t end) {
    add(bits.data() + begin / 8, levels, out.data() + begin, end - begin);
  });
}

void encode_levels(std::span<const float> values, LevelBlocks blocks, std::span<std::byte> bytes,
                   std::span<float> rest) noexcept {
  assert(bytes.size() == blocks.size(values.size()));
  assert(rest.empty() || rest.size() == values.size());
  const auto& encode = HWY_DYNAMIC_DISPATCH(EncodeLevels);
  parallel_for(values.size(), part_unit(blocks.block), [&](size_t begin, size_t end) {
    encode(values.data() + begin, end - begin, blocks, bytes.data() + blocks.size(begin),
           part_of(rest, begin));
  });
}

bool add_levels(std::span<const std::byte> bytes, LevelBlocks blocks, float weight,
                std::span<float> out) noexcept {
  assert(bytes.size() == blocks.size(out.size()));
  const auto& add = HWY_DYNAMIC_DISPATCH(AddLevels);
  return all_parts(out.size(), part_unit(blocks.block), [&](size_t begin, size_t end) {
    return add(bytes.data() + blocks.size(begin), blocks, weight, out.data() + begin, end - begin);
  });
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
