// Scaled blocks. A block is read twice, the second time from the L1 cache; `rest` is written once.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/scaled_blocks.h"

#include <cassert>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/scaled_blocks.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernel/block_statistics-inl.h"
#include "kernel/code_values-inl.h"
#include "kernel/parts.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

float ScaleOf(float max, float largest_code) {
  const float scale = max / largest_code;
  if (scale < std::numeric_limits<float>::min()) return 0;
  return std::isfinite(scale * largest_code) ? scale : std::nextafter(scale, 0.0f);
}

struct Round {
  VCodeF scale, inverse;
  VCodeU mask;

  HWY_INLINE VCodeU Code(VCodeF x, size_t /*at*/, VCodeF* decoded) const {
    const CodeF d;
    const auto whole = hn::Set(d, kWhole);
    const auto rounded = hn::Add(hn::Mul(x, inverse), whole);
    *decoded = hn::Mul(hn::Sub(rounded, whole), scale);
    return hn::And(hn::BitCast(CodeU(), rounded), mask);
  }
};

// Codes of 2 to 8 bits are made signed bytes first: flip the sign bit, and take it off.
class Widen {
 public:
  explicit Widen(size_t bits)
      : sign_(hn::Set(D8(), static_cast<uint8_t>(1 << (bits - 1)))), spoilt_(hn::Zero(D8())) {}

  void set_scale(float scale) { scale_ = hn::Set(CodeF(), scale); }

  HWY_INLINE V8 Check(V8 codes) {
    const V8 flipped = hn::Xor(codes, sign_);  // -m - 1 is 0 now
    spoilt_ = hn::Or(spoilt_, hn::VecFromMask(D8(), hn::Eq(flipped, hn::Zero(D8()))));
    return hn::Sub(flipped, sign_);
  }

  template <int kByte>
  HWY_INLINE VCodeF Value(VCodeU words) const {
    const auto top = hn::BitCast(CodeI(), hn::ShiftLeft<24 - 8 * kByte>(words));
    return hn::Mul(hn::ConvertTo(CodeF(), hn::ShiftRight<24>(top)), scale_);
  }

  bool ok() const { return hn::AllTrue(D8(), hn::Eq(spoilt_, hn::Zero(D8()))); }

 private:
  V8 sign_, spoilt_;
  VCodeF scale_ = hn::Zero(CodeF());
};

template <class Packer>
void Quantise(const Packer& packer, const float* x, size_t count, ScaledBlocks blocks,
              std::byte* out, size_t size, float* rest) {
  const CodeOrder order;
  const std::byte* end = out + size;
  const auto largest_code = static_cast<float>((1 << (blocks.bits - 1)) - 1);
  Round rule;
  rule.mask = hn::Set(CodeU(), (1u << blocks.bits) - 1);
  for (size_t begin = 0; begin < count; begin += blocks.block) {
    const size_t n = std::min(blocks.block, count - begin);
    const float scale = ScaleOf(AbsMax(x + begin, n), largest_code);
    std::memcpy(out, &scale, sizeof scale);
    rule.scale = hn::Set(CodeF(), scale);
    rule.inverse = hn::Set(CodeF(), scale == 0 ? 0 : 1 / scale);
    EncodeCodes(rule, order, packer, x + begin, n, out + sizeof scale, end,
                rest ? rest + begin : nullptr);
    out += sizeof scale + packer.size(n);
  }
}

template <class Packer>
bool Add(const Packer& packer, const std::byte* in, size_t size, ScaledBlocks blocks, float weight,
         float* out, size_t count) {
  const CodeOrder order;
  const std::byte* end = in + size;
  const auto largest_code = static_cast<float>((1 << (blocks.bits - 1)) - 1);
  Widen rule(blocks.bits);
  bool scales_ok = true;
  for (size_t begin = 0; begin < count; begin += blocks.block) {
    const size_t n = std::min(blocks.block, count - begin);
    float scale;
    std::memcpy(&scale, in, sizeof scale);
    scales_ok &= !std::signbit(scale) && std::isfinite(scale * largest_code);
    rule.set_scale(weight * scale);
    AddCodes(rule, order, packer, in + sizeof scale, end, out + begin, n);
    in += sizeof scale + packer.size(n);
  }
  return scales_ok && rule.ok();
}

void QuantiseBlocks(const float* x, size_t count, ScaledBlocks blocks, std::byte* out, size_t size,
                    float* rest) {
  WithPacker(blocks.bits, [=](const auto& packer)
                              HWY_ATTR { Quantise(packer, x, count, blocks, out, size, rest); });
}

bool AddBlocks(const std::byte* in, size_t size, ScaledBlocks blocks, float weight, float* out,
               size_t count) {
  return WithPacker(blocks.bits, [=](const auto& packer) HWY_ATTR {
    return Add(packer, in, size, blocks, weight, out, count);
  });
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(QuantiseBlocks);
HWY_EXPORT(AddBlocks);
}  // namespace

void quantise_blocks(std::span<const float> values, ScaledBlocks blocks, std::span<std::byte> bytes,
                     std::span<float> rest) noexcept {
  assert(bytes.size() == blocks.size(values.size()));
  assert(rest.empty() || rest.size() == values.size());
  const auto& quantise = HWY_DYNAMIC_DISPATCH(QuantiseBlocks);
  parallel_for(values.size(), part_unit(blocks.block), [&](size_t begin, size_t end) {
    quantise(values.data() + begin, end - begin, blocks, bytes.data() + blocks.size(begin),
             blocks.size(end - begin), part_of(rest, begin));
  });
}

bool add_blocks(std::span<const std::byte> bytes, ScaledBlocks blocks, float weight,
                std::span<float> out) noexcept {
  assert(bytes.size() == blocks.size(out.size()));
  const auto& add = HWY_DYNAMIC_DISPATCH(AddBlocks);
  return all_parts(out.size(), part_unit(blocks.block), [&](size_t begin, size_t end) {
    return add(bytes.data() + blocks.size(begin), blocks.size(end - begin), blocks, weight,
               out.data() + begin, end - begin);
  });
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
