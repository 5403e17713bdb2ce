// Scales a vector in one pass: load, multiply, check the exponent, store.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/scale_sums.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/scale_sums.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernel/parts.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr uint32_t kExponent = 0x7F800000;  // all ones in NaN and Inf, and in nothing else

bool ScaleSums(float* values, size_t count, float factor) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const size_t lanes = hn::Lanes(d);
  const auto by = hn::Set(d, factor);
  const auto exponent = hn::Set(du, kExponent);
  auto largest = hn::Zero(du);  // exponent
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto product = hn::Mul(hn::LoadU(d, values + i), by);
    largest = hn::Max(largest, hn::And(hn::BitCast(du, product), exponent));
    hn::StoreU(product, d, values + i);
  }
  bool finite = hn::AllTrue(du, hn::Ne(largest, exponent));
  for (; i < count; ++i) {
    values[i] *= factor;
    finite &= std::isfinite(values[i]);
  }
  return finite;
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(ScaleSums);
}  // namespace

bool scale_sums(std::span<float> values, float factor) noexcept {
  const auto& scale = HWY_DYNAMIC_DISPATCH(ScaleSums);
  return all_parts(values.size(), kPartUnit, [&](size_t begin, size_t end) {
    return scale(values.data() + begin, end - begin, factor);
  });
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
