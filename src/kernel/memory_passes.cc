// Passes with moments in SIMD; the others are loops that the compiler vectorises by itself.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/memory_passes.h"

#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/memory_passes.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernel/moment_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

Moments WeightedSum(float p, const float* a, float q, const float* b, float* out, size_t count) {
  const VF p_lanes = hn::Set(DF(), p), q_lanes = hn::Set(DF(), q);
  const auto sum = [=](size_t i) HWY_ATTR {
    return hn::Add(hn::Mul(p_lanes, hn::LoadU(DF(), a + i)),
                   hn::Mul(q_lanes, hn::LoadU(DF(), b + i)));
  };
  const auto tail = [=](size_t i) { return out[i] = p * a[i] + q * b[i]; };
  if (CanStream(out, count) && out != a && out != b) {
    const auto at = [=](size_t i) HWY_ATTR {
      const VF x = sum(i);
      hn::Stream(x, DF(), out + i);
      return x;
    };
    const Moments total = ReduceMoments(count, at, tail, a, b);
    hwy::FlushStream();
    return total;
  }
  const auto at = [=](size_t i) HWY_ATTR {
    const VF x = sum(i);
    hn::StoreU(x, DF(), out + i);
    return x;
  };
  return ReduceMoments(count, at, tail, a, b);
}

template <bool kNesterov>
Moments AddVelocity(float momentum, float scale, const float* g, const float* u, const float* v,
                    float* new_u, float* new_v, size_t count) {
  const VF m = hn::Set(DF(), momentum), s = hn::Set(DF(), scale);
  const bool stream = CanStream(new_u, count) && CanStream(new_v, count);
  const auto tail = [=](size_t i) {
    const float own = scale * g[i];
    new_u[i] = kNesterov ? momentum * (u[i] + own) : momentum * u[i] + own;
    return new_v[i] = kNesterov ? (v[i] + new_u[i]) + own : v[i] + new_u[i];
  };
  const auto at = [=](size_t i) HWY_ATTR {
    const VF own = hn::Mul(s, hn::LoadU(DF(), g + i));
    const VF old = hn::LoadU(DF(), u + i);
    const VF velocity = kNesterov ? hn::Mul(m, hn::Add(old, own)) : hn::Add(hn::Mul(m, old), own);
    VF sum = hn::Add(hn::LoadU(DF(), v + i), velocity);
    if (kNesterov) sum = hn::Add(sum, own);
    if (stream) {
      hn::Stream(velocity, DF(), new_u + i);
      hn::Stream(sum, DF(), new_v + i);
    } else {
      hn::StoreU(velocity, DF(), new_u + i);
      hn::StoreU(sum, DF(), new_v + i);
    }
    return sum;
  };
  const Moments total = ReduceMoments(count, at, tail, g, u, v);
  if (stream) hwy::FlushStream();
  return total;
}

Moments AddPlain(float momentum, float scale, const float* g, const float* u, const float* v,
                 float* new_u, float* new_v, size_t count) {
  return AddVelocity<false>(momentum, scale, g, u, v, new_u, new_v, count);
}

Moments AddNesterov(float momentum, float scale, const float* g, const float* u, const float* v,
                    float* new_u, float* new_v, size_t count) {
  return AddVelocity<true>(momentum, scale, g, u, v, new_u, new_v, count);
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(WeightedSum);
HWY_EXPORT(AddPlain);
HWY_EXPORT(AddNesterov);
}  // namespace

Moments weighted_sum_with_moments(float p, std::span<const float> a, float q,
                                  std::span<const float> b, std::span<float> out) noexcept {
  return HWY_DYNAMIC_DISPATCH(WeightedSum)(p, a.data(), q, b.data(), out.data(), out.size());
}

void weighted_sum(float p, std::span<const float> a, float q, std::span<const float> b,
                  std::span<float> out) noexcept {
  for (size_t i = 0; i < out.size(); ++i) out[i] = p * a[i] + q * b[i];
}

Moments add_velocity(const MomentumRule& rule, std::span<const float> gradient,
                     std::span<const float> velocity, std::span<const float> sum,
                     std::span<float> new_velocity, std::span<float> new_sum) noexcept {
  const size_t count = new_sum.size();
  if (rule.nesterov)
    return HWY_DYNAMIC_DISPATCH(AddNesterov)(rule.momentum, rule.scale, gradient.data(),
                                             velocity.data(), sum.data(), new_velocity.data(),
                                             new_sum.data(), count);
  return HWY_DYNAMIC_DISPATCH(AddPlain)(rule.momentum, rule.scale, gradient.data(), velocity.data(),
                                        sum.data(), new_velocity.data(), new_sum.data(), count);
}

void mask_velocity(const MomentumRule& rule, std::span<const float> gradient,
                   std::span<const float> sum, std::span<const float> rest,
                   std::span<float> new_velocity) noexcept {
  if (rule.nesterov) {
    for (size_t i = 0; i < rest.size(); ++i) {
      const float was = (sum[i] + new_velocity[i]) + rule.scale * gradient[i];
      new_velocity[i] = rest[i] == was ? new_velocity[i] : 0.0f;
    }
  } else {
    for (size_t i = 0; i < rest.size(); ++i)
      new_velocity[i] = rest[i] == sum[i] + new_velocity[i] ? new_velocity[i] : 0.0f;
  }
}

void advance_estimate(std::span<const float> estimate, std::span<const float> gradient,
                      std::span<float> rest) noexcept {
  for (size_t i = 0; i < rest.size(); ++i)
    rest[i] = estimate[i] + ((gradient[i] - estimate[i]) - rest[i]);
}

void add_and_copy(std::span<float> total, std::span<float> values) noexcept {
  for (size_t i = 0; i < total.size(); ++i) values[i] = total[i] += values[i];
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
