// Passes of memories: those with moments in SIMD; the compiler vectorises the others by itself.
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
#include "kernel/moment_parts.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

Moments WeightedSum(float p, const float* a, float q, const float* b, float* out, size_t count,
                    size_t whole, Moments* chunks) {
  const VF p_lanes = hn::Set(DF(), p), q_lanes = hn::Set(DF(), q);
  const auto sum = [=](size_t i) HWY_ATTR {
    return hn::Add(hn::Mul(p_lanes, hn::LoadU(DF(), a + i)),
                   hn::Mul(q_lanes, hn::LoadU(DF(), b + i)));
  };
  const auto tail = [=](size_t i) { return out[i] = p * a[i] + q * b[i]; };
  if (CanStream(out, whole) && out != a && out != b) {
    const auto at = [=](size_t i) HWY_ATTR {
      const VF x = sum(i);
      hn::Stream(x, DF(), out + i);
      return x;
    };
    const Moments total = ReduceMoments(chunks, count, at, tail, a, b);
    hwy::FlushStream();
    return total;
  }
  const auto at = [=](size_t i) HWY_ATTR {
    const VF x = sum(i);
    hn::StoreU(x, DF(), out + i);
    return x;
  };
  return ReduceMoments(chunks, count, at, tail, a, b);
}

template <bool kNesterov>
Moments AddVelocity(float momentum, float scale, const float* g, const float* u, const float* v,
                    float* new_u, float* new_v, size_t count, size_t whole, Moments* chunks) {
  const VF m = hn::Set(DF(), momentum), s = hn::Set(DF(), scale);
  const bool stream = CanStream(new_u, whole) && CanStream(new_v, whole);
  const auto tail = [=](size_t i) {
    const float own = scale * g[i];
    new_u[i] = momentum * u[i] + own;
    return new_v[i] = kNesterov ? (v[i] + own) + momentum * new_u[i] : v[i] + new_u[i];
  };
  const auto at = [=](size_t i) HWY_ATTR {
    const VF own = hn::Mul(s, hn::LoadU(DF(), g + i));
    const VF velocity = hn::Add(hn::Mul(m, hn::LoadU(DF(), u + i)), own);
    VF sum = hn::Add(hn::LoadU(DF(), v + i), kNesterov ? own : velocity);
    if (kNesterov) sum = hn::Add(sum, hn::Mul(m, velocity));
    if (stream) {
      hn::Stream(velocity, DF(), new_u + i);
      hn::Stream(sum, DF(), new_v + i);
    } else {
      hn::StoreU(velocity, DF(), new_u + i);
      hn::StoreU(sum, DF(), new_v + i);
    }
    return sum;
  };
  const Moments total = ReduceMoments(chunks, count, at, tail, g, u, v);
  if (stream) hwy::FlushStream();
  return total;
}

Moments AddPlain(float momentum, float scale, const float* g, const float* u, const float* v,
                 float* new_u, float* new_v, size_t count, size_t whole, Moments* chunks) {
  return AddVelocity<false>(momentum, scale, g, u, v, new_u, new_v, count, whole, chunks);
}

Moments AddNesterov(float momentum, float scale, const float* g, const float* u, const float* v,
                    float* new_u, float* new_v, size_t count, size_t whole, Moments* chunks) {
  return AddVelocity<true>(momentum, scale, g, u, v, new_u, new_v, count, whole, chunks);
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
  const auto& sum = HWY_DYNAMIC_DISPATCH(WeightedSum);
  return moments_of_parts(out.size(), [&](size_t begin, size_t end, Moments* chunks) {
    return sum(p, a.data() + begin, q, b.data() + begin, out.data() + begin, end - begin,
               out.size(), chunks);
  });
}

void weighted_sum(float p, std::span<const float> a, float q, std::span<const float> b,
                  std::span<float> out) noexcept {
  parallel_for(out.size(), kPartUnit, [=](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) out[i] = p * a[i] + q * b[i];
  });
}

Moments add_velocity(const MomentumRule& rule, std::span<const float> gradient,
                     std::span<const float> velocity, std::span<const float> sum,
                     std::span<float> new_velocity, std::span<float> new_sum) noexcept {
  const auto& add =
      rule.nesterov ? HWY_DYNAMIC_DISPATCH(AddNesterov) : HWY_DYNAMIC_DISPATCH(AddPlain);
  return moments_of_parts(new_sum.size(), [&](size_t begin, size_t end, Moments* chunks) {
    return add(rule.momentum, rule.scale, gradient.data() + begin, velocity.data() + begin,
               sum.data() + begin, new_velocity.data() + begin, new_sum.data() + begin, end - begin,
               new_sum.size(), chunks);
  });
}

void mask_velocity(const MomentumRule& rule, std::span<const float> gradient,
                   std::span<const float> sum, std::span<const float> rest,
                   std::span<float> new_velocity) noexcept {
  parallel_for(rest.size(), kPartUnit, [&](size_t begin, size_t end) {
    if (rule.nesterov) {
      for (size_t i = begin; i < end; ++i) {
        const float was = (sum[i] + rule.scale * gradient[i]) + rule.momentum * new_velocity[i];
        new_velocity[i] = rest[i] == was ? new_velocity[i] : 0.0f;
      }
    } else {
      for (size_t i = begin; i < end; ++i)
        new_velocity[i] = rest[i] == sum[i] + new_velocity[i] ? new_velocity[i] : 0.0f;
    }
  });
}

void mask_velocity_at(const MomentumRule& rule, std::span<const uint32_t> positions,
                      std::span<const float> gradient, std::span<const float> sum,
                      std::span<const float> rest, std::span<float> new_velocity) noexcept {
  parallel_for(positions.size(), kPartUnit, [&](size_t begin, size_t end) {
    for (const uint32_t i : positions.subspan(begin, end - begin)) {
      const float was = rule.nesterov
                            ? (sum[i] + rule.scale * gradient[i]) + rule.momentum * new_velocity[i]
                            : sum[i] + new_velocity[i];
      if (rest[i] != was) new_velocity[i] = 0.0f;
    }
  });
}

void advance_estimate(std::span<const float> estimate, std::span<const float> gradient,
                      std::span<float> rest) noexcept {
  parallel_for(rest.size(), kPartUnit, [=](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      rest[i] = estimate[i] + ((gradient[i] - estimate[i]) - rest[i]);
  });
}

void add_and_copy(std::span<float> total, std::span<float> values) noexcept {
  parallel_for(total.size(), kPartUnit, [=](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) values[i] = total[i] += values[i];
  });
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
