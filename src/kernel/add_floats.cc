// Adds floats from bytes in one pass: load, check the exponent, multiply, add.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/add_floats.h"

#include <cassert>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/add_floats.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernel/parts.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr uint32_t kExponent = 0x7F800000;  // all ones in NaN and Inf, and in nothing else

bool AddFloats(const std::byte* bytes, float weight, float* out, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Repartition<uint8_t, decltype(d)> d8;
  const size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, weight);
  const auto exponent = hn::Set(du, kExponent);
  auto bad = hn::Zero(du);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto bits =
        hn::BitCast(du, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(bytes + i * sizeof(float))));
    bad = hn::Or(bad, hn::VecFromMask(du, hn::Eq(hn::And(bits, exponent), exponent)));
    const auto sum = hn::Add(hn::LoadU(d, out + i), hn::Mul(factor, hn::BitCast(d, bits)));
    hn::StoreU(sum, d, out + i);
  }
  bool finite = hn::AllTrue(du, hn::Eq(bad, hn::Zero(du)));
  for (; i < count; ++i) {
    uint32_t bits;
    float value;
    std::memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
    std::memcpy(&value, &bits, sizeof value);
    finite &= (bits & kExponent) != kExponent;
    out[i] += weight * value;
  }
  return finite;
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(AddFloats);
}  // namespace

bool add_floats(std::span<const std::byte> bytes, float weight, std::span<float> out) noexcept {
  assert(bytes.size() == out.size_bytes());
  const auto& add = HWY_DYNAMIC_DISPATCH(AddFloats);
  return all_parts(out.size(), kPartUnit, [&](size_t begin, size_t end) {
    return add(bytes.data() + begin * sizeof(float), weight, out.data() + begin, end - begin);
  });
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
