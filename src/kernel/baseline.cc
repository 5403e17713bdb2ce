// Baseline loops in full-width SIMD, with enough independent chains that only memory limits them.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/baseline.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/baseline.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;

float Scan(const float* HWY_RESTRICT x, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {  // four chains hide the latency of Add
    s0 = hn::Add(s0, hn::Abs(hn::LoadU(d, x + i)));
    s1 = hn::Add(s1, hn::Abs(hn::LoadU(d, x + i + lanes)));
    s2 = hn::Add(s2, hn::Abs(hn::LoadU(d, x + i + 2 * lanes)));
    s3 = hn::Add(s3, hn::Abs(hn::LoadU(d, x + i + 3 * lanes)));
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) sum += x[i] < 0 ? -x[i] : x[i];
  return sum;
}

void Stream(const float* HWY_RESTRICT x, float* HWY_RESTRICT target, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Add(hn::LoadU(d, target + i), hn::LoadU(d, x + i)), d, target + i);
  for (; i < n; ++i) target[i] += x[i];
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(Scan);
HWY_EXPORT(Stream);
}  // namespace

float baseline_scan(std::span<const float> values) noexcept {
  return HWY_DYNAMIC_DISPATCH(Scan)(values.data(), values.size());
}

void baseline_stream(std::span<const float> values, std::span<float> target) noexcept {
  HWY_DYNAMIC_DISPATCH(Stream)(values.data(), target.data(), values.size());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
