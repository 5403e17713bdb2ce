// Powers of two in one pass: integers do the rounding, a carry of the mantissa raises the exponent.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/power_codes.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/power_codes.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernel/random_bits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Eight values: one vector, or two of four lanes.
using DPower = hn::CappedTag<float, 8>;
using UPower = hn::RebindToUnsigned<DPower>;
using IPower = hn::RebindToSigned<DPower>;
using VPower = hn::Vec<DPower>;
constexpr size_t kPowerLanes = hn::MaxLanes(DPower());
constexpr size_t kPowerVectors = 8 / kPowerLanes;
constexpr size_t kPowerBytes = 9;  // of eight values

HWY_INLINE void RoundEight(const float* x, const uint16_t* draws, uint8_t* exponents,
                           uint8_t* signs, float* rest) {
  const DPower d;
  const UPower du;
  uint8_t masks[kPowerVectors][8];  // StoreMaskBits may write 8 bytes
  for (size_t v = 0; v < kPowerVectors; ++v) {
    const size_t at = v * kPowerLanes;
    const VPower value = hn::LoadU(d, x + at);
    // Sixteen bits of mantissa, rounded, below eight of exponent; then a draw.
    const auto magnitude = hn::BitCast(du, hn::Abs(value));
    const auto rounded = hn::ShiftRight<7>(hn::Add(magnitude, hn::Set(du, 64)));
    const auto draw = hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, DPower>(), draws + at));
    auto exponent = hn::ShiftRight<16>(hn::Add(rounded, draw));
    exponent = hn::Min(exponent, hn::Set(du, 254));
    hn::StoreU(hn::U8FromU32(exponent), hn::Rebind<uint8_t, DPower>(), exponents + at);
    const auto negative = hn::Lt(value, hn::Zero(d));
    hn::StoreMaskBits(d, negative, masks[v]);
    const VPower power = hn::BitCast(d, hn::ShiftLeft<23>(exponent));
    const VPower decoded = hn::IfThenElse(negative, hn::Neg(power), power);
    if (rest != nullptr) hn::StoreU(hn::Sub(value, decoded), d, rest + at);
  }
  *signs = masks[0][0];
  if constexpr (kPowerVectors == 2) *signs = static_cast<uint8_t>(masks[0][0] | masks[1][0] << 4);
}

void RoundToPowers(const float* x, size_t count, const Dither& dither, std::byte* bytes,
                   float* rest) {
  Draws draws(dither.key);
  auto* out = reinterpret_cast<uint8_t*>(bytes);
  for (size_t begin = 0; begin < count; begin += Draws::kMost) {
    const size_t n = std::min(Draws::kMost, count - begin);
    draws.Fill(dither.position + begin, n);
    size_t i = 0;
    for (; i + 8 <= n; i += 8, out += kPowerBytes)
      RoundEight(x + begin + i, draws.at(i), out, out + 8, rest ? rest + begin + i : nullptr);
    if (i < n) {
      float last[8] = {};
      uint8_t last_bytes[kPowerBytes];
      std::memcpy(last, x + begin + i, (n - i) * sizeof(float));
      RoundEight(last, draws.at(i), last_bytes, last_bytes + 8, last);
      std::memcpy(out, last_bytes, n - i);
      out[n - i] = last_bytes[8];
      if (rest) std::memcpy(rest + begin + i, last, (n - i) * sizeof(float));
    }
  }
}

// Returns the largest exponent seen, lane by lane.
HWY_INLINE hn::Vec<UPower> AddEight(const uint8_t* exponents, uint8_t signs, VPower weight,
                                    float* out) {
  const DPower d;
  const UPower du;
  auto largest = hn::Zero(du);
  for (size_t v = 0; v < kPowerVectors; ++v) {
    const size_t at = v * kPowerLanes;
    const auto exponent =
        hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint8_t, DPower>(), exponents + at));
    largest = hn::Max(largest, exponent);
    const uint8_t mask[8] = {static_cast<uint8_t>(signs >> at)};
    const VPower power = hn::BitCast(d, hn::ShiftLeft<23>(exponent));
    const VPower value = hn::IfThenElse(hn::LoadMaskBits(d, mask), hn::Neg(power), power);
    hn::StoreU(hn::Add(hn::LoadU(d, out + at), hn::Mul(weight, value)), d, out + at);
  }
  return largest;
}

bool AddPowers(const std::byte* bytes, float weight, float* out, size_t count) {
  const UPower du;
  const auto factor = hn::Set(DPower(), weight);
  const auto* in = reinterpret_cast<const uint8_t*>(bytes);
  auto largest = hn::Zero(du);
  size_t i = 0;
  for (; i + 8 <= count; i += 8, in += kPowerBytes)
    largest = hn::Max(largest, AddEight(in, in[8], factor, out + i));
  if (i < count) {
    float last[8] = {};
    uint8_t exponents[8] = {};
    std::memcpy(last, out + i, (count - i) * sizeof(float));
    std::memcpy(exponents, in, count - i);
    largest = hn::Max(largest, AddEight(exponents, in[count - i], factor, last));
    std::memcpy(out + i, last, (count - i) * sizeof(float));
  }
  return hn::AllFalse(du, hn::Eq(largest, hn::Set(du, 255)));
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(RoundToPowers);
HWY_EXPORT(AddPowers);
}  // namespace

void round_to_powers(std::span<const float> values, const Dither& dither,
                     std::span<std::byte> bytes, std::span<float> rest) noexcept {
  assert(bytes.size() == power_bytes(values.size()));
  assert(rest.empty() || rest.size() == values.size());
  HWY_DYNAMIC_DISPATCH(RoundToPowers)
  (values.data(), values.size(), dither, bytes.data(), rest.empty() ? nullptr : rest.data());
}

bool add_powers(std::span<const std::byte> bytes, float weight, std::span<float> out) noexcept {
  assert(bytes.size() == power_bytes(out.size()));
  return HWY_DYNAMIC_DISPATCH(AddPowers)(bytes.data(), weight, out.data(), out.size());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
