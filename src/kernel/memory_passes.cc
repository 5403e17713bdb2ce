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

// One value of form_ahead, from its u': v', f and the signal.
struct Ahead {
  VF sum, kept, signal;
};

template <bool kNesterov>
HWY_INLINE Ahead AheadOf(VF m, VF s, VF tail, VF g, VF u, VF v) {
  const VF one = hn::Set(DF(), 1.0f);
  const VF now = kNesterov ? hn::Add(hn::Mul(s, g), hn::Mul(m, u)) : u;
  const VF sum = hn::Add(v, now);
  const VF share = hn::Min(hn::Max(hn::Div(now, sum), hn::Zero(DF())), one);
  const VF kept = hn::IfThenElse(hn::Eq(sum, hn::Zero(DF())), one, share);
  return {sum, kept, hn::Add(sum, hn::Mul(hn::Mul(hn::Sub(one, kept), tail), u))};
}

template <bool kNesterov>
Moments FormAheadOf(float momentum, float scale, float tail, const float* g, const float* u,
                    const float* v, float* new_u, float* signal, size_t count, size_t whole,
                    Moments* chunks) {
  const VF m = hn::Set(DF(), momentum), s = hn::Set(DF(), scale), t = hn::Set(DF(), tail);
  const bool stream = CanStream(new_u, whole) && CanStream(signal, whole);
  const auto form = [=](VF gradient, VF velocity, VF waiting, VF& next) HWY_ATTR {
    next = hn::Add(hn::Mul(m, velocity), hn::Mul(s, gradient));
    return AheadOf<kNesterov>(m, s, t, gradient, next, waiting).signal;
  };
  const auto last = [=](size_t i) HWY_ATTR {  // one value, by the same operations
    VF next;
    const VF out = form(hn::Set(DF(), g[i]), hn::Set(DF(), u[i]), hn::Set(DF(), v[i]), next);
    new_u[i] = hn::GetLane(next);
    return signal[i] = hn::GetLane(out);
  };
  const auto at = [=](size_t i) HWY_ATTR {
    VF next;
    const VF out =
        form(hn::LoadU(DF(), g + i), hn::LoadU(DF(), u + i), hn::LoadU(DF(), v + i), next);
    if (stream) {
      hn::Stream(next, DF(), new_u + i);
      hn::Stream(out, DF(), signal + i);
    } else {
      hn::StoreU(next, DF(), new_u + i);
      hn::StoreU(out, DF(), signal + i);
    }
    return out;
  };
  const Moments total = ReduceMoments(chunks, count, at, last, g, u, v);
  if (stream) hwy::FlushStream();
  return total;
}

Moments FormAhead(bool nesterov, float momentum, float scale, float tail, const float* g,
                  const float* u, const float* v, float* new_u, float* signal, size_t count,
                  size_t whole, Moments* chunks) {
  const auto& form = nesterov ? FormAheadOf<true> : FormAheadOf<false>;
  return form(momentum, scale, tail, g, u, v, new_u, signal, count, whole, chunks);
}

template <bool kNesterov>
void SettleAheadOf(float momentum, float scale, float tail, const float* g, const float* v,
                   float* new_u, float* rest, size_t count) {
  const VF m = hn::Set(DF(), momentum), s = hn::Set(DF(), scale), t = hn::Set(DF(), tail);
  const auto settle = [=](VF gradient, VF waiting, VF& next, VF& left) HWY_ATTR {
    const Ahead was = AheadOf<kNesterov>(m, s, t, gradient, next, waiting);
    const auto unsent = hn::Eq(left, was.signal);
    next = hn::IfThenElse(unsent, next, hn::Mul(was.kept, next));
    left = hn::IfThenElse(unsent, was.sum, left);
  };
  const size_t lanes = hn::Lanes(DF());
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    VF next = hn::LoadU(DF(), new_u + i), left = hn::LoadU(DF(), rest + i);
    settle(hn::LoadU(DF(), g + i), hn::LoadU(DF(), v + i), next, left);
    hn::StoreU(next, DF(), new_u + i);
    hn::StoreU(left, DF(), rest + i);
  }
  for (; i < count; ++i) {
    VF next = hn::Set(DF(), new_u[i]), left = hn::Set(DF(), rest[i]);
    settle(hn::Set(DF(), g[i]), hn::Set(DF(), v[i]), next, left);
    new_u[i] = hn::GetLane(next);
    rest[i] = hn::GetLane(left);
  }
}

void SettleAhead(bool nesterov, float momentum, float scale, float tail, const float* g,
                 const float* v, float* new_u, float* rest, size_t count) {
  const auto& settle = nesterov ? SettleAheadOf<true> : SettleAheadOf<false>;
  settle(momentum, scale, tail, g, v, new_u, rest, count);
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
HWY_EXPORT(FormAhead);
HWY_EXPORT(SettleAhead);
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

Moments form_ahead(const MomentumRule& rule, float tail, std::span<const float> gradient,
                   std::span<const float> velocity, std::span<const float> sum,
                   std::span<float> new_velocity, std::span<float> signal) noexcept {
  const auto& form = HWY_DYNAMIC_DISPATCH(FormAhead);
  return moments_of_parts(signal.size(), [&](size_t begin, size_t end, Moments* chunks) {
    return form(rule.nesterov, rule.momentum, rule.scale, tail, gradient.data() + begin,
                velocity.data() + begin, sum.data() + begin, new_velocity.data() + begin,
                signal.data() + begin, end - begin, signal.size(), chunks);
  });
}

void settle_ahead(const MomentumRule& rule, float tail, std::span<const float> gradient,
                  std::span<const float> sum, std::span<float> new_velocity,
                  std::span<float> rest) noexcept {
  const auto& settle = HWY_DYNAMIC_DISPATCH(SettleAhead);
  parallel_for(rest.size(), kPartUnit, [&](size_t begin, size_t end) {
    settle(rule.nesterov, rule.momentum, rule.scale, tail, gradient.data() + begin,
           sum.data() + begin, new_velocity.data() + begin, rest.data() + begin, end - begin);
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
