// Floats of 16 bits: one loop per operation, templated on how a vector is narrowed and widened.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/half_float.h"

#include <cassert>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/half_float.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernel/parts.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using D16 = hn::Rebind<uint16_t, DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
using V16 = hn::Vec<D16>;

HWY_INLINE V16 Narrow(VU bits) { return hn::DemoteTo(D16(), hn::BitCast(DI(), bits)); }

struct Bfloat {
  static constexpr uint16_t kExponent = 0x7F80;  // Inf; all values from here on are not finite

  static HWY_INLINE V16 Encode(VF x) {
    const DU du;
    const auto u = hn::BitCast(du, x);
    const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7FFF))));
    const auto quiet = hn::Or(hn::ShiftRight<16>(u), hn::Set(du, 0x0040));
    return Narrow(hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, rounded));
  }

  static HWY_INLINE VF Decode(V16 bits) {
    return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), bits)));
  }
};

struct Half {
  static constexpr uint16_t kExponent = 0x7C00;

// AVX2 and later imply the conversion instructions; the emulation below gives the same bits.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  static HWY_INLINE V16 Encode(VF x) {
    return hn::BitCast(D16(), hn::DemoteTo(hn::Rebind<hwy::float16_t, DF>(), x));
  }

  static HWY_INLINE VF Decode(V16 bits) {
    return hn::PromoteTo(DF(), hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), bits));
  }
#else
  static HWY_INLINE V16 Encode(VF x) {
    const DF df;
    const DU du;
    const auto u = hn::BitCast(du, hn::Abs(x));
    const auto sign = hn::ShiftLeft<15>(hn::ShiftRight<31>(hn::BitCast(du, x)));
    // Normal results: move the exponent's bias from 127 to 15 and round at bit 13. A carry out of
    // the mantissa raises the exponent, up to Inf, as it should.
    const auto odd = hn::And(hn::ShiftRight<13>(u), hn::Set(du, 1));
    const auto rebias = hn::Set(du, 0xFFFu - (112u << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(u, rebias), odd));
    // Subnormal results: in 0.5 + |x| the last place is worth 2^-24, that of a subnormal half, so
    // the addition rounds.
    const auto half = hn::Set(df, 0.5f);
    const auto tiny =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, u), half)), hn::BitCast(du, half));
    const auto inf = hn::Set(du, 0x7C00);
    const auto nan =
        hn::Or(hn::Set(du, 0x7E00), hn::And(hn::ShiftRight<13>(u), hn::Set(du, 0x3FF)));
    auto bits = hn::IfThenElse(Less(u, 113u << 23), tiny, normal);
    bits = hn::IfThenElse(Less(u, 143u << 23), bits, inf);  // below 65536
    bits = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), nan, bits);
    return Narrow(hn::Or(bits, sign));
  }

  static HWY_INLINE VF Decode(V16 bits) {
    const DF df;
    const DU du;
    const auto wide = hn::PromoteTo(du, bits);
    const auto sign = hn::ShiftLeft<31>(hn::ShiftRight<15>(wide));
    const auto u = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7FFF)));
    const auto normal = hn::Add(u, hn::Set(du, 112u << 23));
    // Subnormals: give them the exponent of 2^-14 and an implicit one, then take that one away.
    const auto one = hn::Set(du, 113u << 23);
    const auto tiny =
        hn::BitCast(du, hn::Sub(hn::BitCast(df, hn::Add(u, one)), hn::BitCast(df, one)));
    const auto inf = hn::Set(du, 0x7C00u << 13);
    const auto special = hn::Or(u, hn::Set(du, 0x7F800000));
    const auto quiet =
        hn::IfThenElse(hn::Eq(u, inf), special, hn::Or(special, hn::Set(du, 0x00400000)));
    auto out = hn::IfThenElse(Less(u, 1u << 23), tiny, normal);
    out = hn::IfThenElse(Less(u, 0x7C00u << 13), out, quiet);
    return hn::BitCast(df, hn::Or(out, sign));
  }

 private:
  // u < bound, for bit patterns without the sign bit: signed comparison is the cheap one.
  static HWY_INLINE hn::Mask<DU> Less(VU u, uint32_t bound) {
    const DI di;
    return hn::RebindMask(DU(),
                          hn::Lt(hn::BitCast(di, u), hn::Set(di, static_cast<int32_t>(bound))));
  }
#endif
};

HWY_INLINE V16 Load(const std::byte* bytes) {
  const hn::Repartition<uint8_t, D16> d8;
  return hn::BitCast(D16(), hn::LoadU(d8, reinterpret_cast<const uint8_t*>(bytes)));
}

HWY_INLINE void Store(V16 bits, std::byte* bytes) {
  const hn::Repartition<uint8_t, D16> d8;
  hn::StoreU(hn::BitCast(d8, bits), d8, reinterpret_cast<uint8_t*>(bytes));
}

template <class Format>
HWY_INLINE hn::Mask<D16> IsInfOrNan(V16 bits) {
  const D16 d;
  const auto exponent = hn::Set(d, Format::kExponent);
  return hn::Eq(hn::And(bits, exponent), exponent);
}

// The largest finite value of the same sign for an infinity, others as they are.
template <class Format>
HWY_INLINE V16 Saturate(V16 bits) {
  const D16 d;
  const auto is_inf = hn::Eq(hn::And(bits, hn::Set(d, 0x7FFF)), hn::Set(d, Format::kExponent));
  return hn::Add(bits, hn::VecFromMask(d, is_inf));  // adds -1, all ones
}

template <class Format, bool kSaturated>
HWY_INLINE void EncodeVector(const float* values, std::byte* bytes, float* rest) {
  const DF d;
  const auto x = hn::LoadU(d, values);
  auto bits = Format::Encode(x);
  if (kSaturated) bits = Saturate<Format>(bits);
  Store(bits, bytes);
  if (rest != nullptr) hn::StoreU(hn::Sub(x, Format::Decode(bits)), d, rest);
}

template <class Format, bool kSaturated>
void Encode(const float* values, size_t count, std::byte* bytes, float* rest) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    EncodeVector<Format, kSaturated>(values + i, bytes + 2 * i, rest ? rest + i : nullptr);
  if (i == count) return;
  HWY_ALIGN float last[hn::MaxLanes(d)] = {};
  HWY_ALIGN std::byte last_bytes[2 * hn::MaxLanes(d)];
  std::memcpy(last, values + i, (count - i) * sizeof(float));
  EncodeVector<Format, kSaturated>(last, last_bytes, rest ? last : nullptr);
  std::memcpy(bytes + 2 * i, last_bytes, (count - i) * 2);
  if (rest) std::memcpy(rest + i, last, (count - i) * sizeof(float));
}

// Returns the lanes that are not finite.
template <class Format, bool kAdd>
HWY_INLINE hn::Mask<D16> DecodeVector(const std::byte* bytes, VF weight, float* out) {
  const DF d;
  const auto bits = Load(bytes);
  auto x = Format::Decode(bits);
  if (kAdd) x = hn::Add(hn::LoadU(d, out), hn::Mul(weight, x));
  hn::StoreU(x, d, out);
  return IsInfOrNan<Format>(bits);
}

template <class Format, bool kAdd>
bool Decode(const std::byte* bytes, float weight, float* out, size_t count) {
  const DF d;
  const D16 d16;
  const size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, weight);
  auto bad = hn::Zero(d16);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto mask = DecodeVector<Format, kAdd>(bytes + 2 * i, factor, out + i);
    bad = hn::Or(bad, hn::VecFromMask(d16, mask));
  }
  if (i < count) {
    HWY_ALIGN float last[hn::MaxLanes(d)] = {};
    HWY_ALIGN std::byte last_bytes[2 * hn::MaxLanes(d)] = {};
    std::memcpy(last, out + i, (count - i) * sizeof(float));
    std::memcpy(last_bytes, bytes + 2 * i, (count - i) * 2);
    const auto mask = DecodeVector<Format, kAdd>(last_bytes, factor, last);
    bad = hn::Or(bad, hn::VecFromMask(d16, mask));
    std::memcpy(out + i, last, (count - i) * sizeof(float));
  }
  return hn::AllTrue(d16, hn::Eq(bad, hn::Zero(d16)));
}

// HWY_EXPORT takes plain names.
void ToHalf(const float* values, size_t count, std::byte* bytes, float* rest) {
  Encode<Half, false>(values, count, bytes, rest);
}
void ToBfloat(const float* values, size_t count, std::byte* bytes, float* rest) {
  Encode<Bfloat, false>(values, count, bytes, rest);
}
void ToHalfSaturated(const float* values, size_t count, std::byte* bytes, float* rest) {
  Encode<Half, true>(values, count, bytes, rest);
}
void ToBfloatSaturated(const float* values, size_t count, std::byte* bytes, float* rest) {
  Encode<Bfloat, true>(values, count, bytes, rest);
}
bool FromHalf(const std::byte* bytes, float* out, size_t count) {
  return Decode<Half, false>(bytes, 1, out, count);
}
bool FromBfloat(const std::byte* bytes, float* out, size_t count) {
  return Decode<Bfloat, false>(bytes, 1, out, count);
}
bool AddHalf(const std::byte* bytes, float weight, float* out, size_t count) {
  return Decode<Half, true>(bytes, weight, out, count);
}
bool AddBfloat(const std::byte* bytes, float weight, float* out, size_t count) {
  return Decode<Bfloat, true>(bytes, weight, out, count);
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(ToHalf);
HWY_EXPORT(ToBfloat);
HWY_EXPORT(ToHalfSaturated);
HWY_EXPORT(ToBfloatSaturated);
HWY_EXPORT(FromHalf);
HWY_EXPORT(FromBfloat);
HWY_EXPORT(AddHalf);
HWY_EXPORT(AddBfloat);

// On parts, each by encode(values, count, bytes, rest).
template <typename Encode>
void encode_parts(const Encode& encode, std::span<const float> values, std::span<std::byte> bytes,
                  std::span<float> rest) noexcept {
  assert(bytes.size() == 2 * values.size() && (rest.empty() || rest.size() == values.size()));
  parallel_for(values.size(), kPartUnit, [&](size_t begin, size_t end) {
    encode(values.data() + begin, end - begin, bytes.data() + 2 * begin, part_of(rest, begin));
  });
}

// On parts, each by decode(bytes, out, count).
template <typename Decode>
bool decode_parts(const Decode& decode, std::span<const std::byte> bytes,
                  std::span<float> out) noexcept {
  assert(bytes.size() == 2 * out.size());
  return all_parts(out.size(), kPartUnit, [&](size_t begin, size_t end) {
    return decode(bytes.data() + 2 * begin, out.data() + begin, end - begin);
  });
}

template <typename Add>
bool add_parts(const Add& add, std::span<const std::byte> bytes, float weight,
               std::span<float> out) noexcept {
  assert(bytes.size() == 2 * out.size());
  return all_parts(out.size(), kPartUnit, [&](size_t begin, size_t end) {
    return add(bytes.data() + 2 * begin, weight, out.data() + begin, end - begin);
  });
}

}  // namespace

void to_half(std::span<const float> values, std::span<std::byte> bytes) noexcept {
  encode_parts(HWY_DYNAMIC_DISPATCH(ToHalf), values, bytes, {});
}

void to_bfloat(std::span<const float> values, std::span<std::byte> bytes) noexcept {
  encode_parts(HWY_DYNAMIC_DISPATCH(ToBfloat), values, bytes, {});
}

void to_half_saturated(std::span<const float> values, std::span<std::byte> bytes,
                       std::span<float> rest) noexcept {
  encode_parts(HWY_DYNAMIC_DISPATCH(ToHalfSaturated), values, bytes, rest);
}

void to_bfloat_saturated(std::span<const float> values, std::span<std::byte> bytes,
                         std::span<float> rest) noexcept {
  encode_parts(HWY_DYNAMIC_DISPATCH(ToBfloatSaturated), values, bytes, rest);
}

bool from_half(std::span<const std::byte> bytes, std::span<float> out) noexcept {
  return decode_parts(HWY_DYNAMIC_DISPATCH(FromHalf), bytes, out);
}

bool from_bfloat(std::span<const std::byte> bytes, std::span<float> out) noexcept {
  return decode_parts(HWY_DYNAMIC_DISPATCH(FromBfloat), bytes, out);
}

bool add_half(std::span<const std::byte> bytes, float weight, std::span<float> out) noexcept {
  return add_parts(HWY_DYNAMIC_DISPATCH(AddHalf), bytes, weight, out);
}

bool add_bfloat(std::span<const std::byte> bytes, float weight, std::span<float> out) noexcept {
  return add_parts(HWY_DYNAMIC_DISPATCH(AddBfloat), bytes, weight, out);
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
