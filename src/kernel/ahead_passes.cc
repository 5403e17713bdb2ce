// Passes of `ahead` in SIMD.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/ahead_passes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/ahead_passes.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernel/moment_lanes-inl.h"
#include "kernel/moment_parts.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

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

// v' alone, of values of which nothing was sent.
template <bool kNesterov>
HWY_INLINE void SumAheadOf(VF m, VF s, const float* g, const float* v, const float* new_u,
                           float* rest, size_t count) {
  for (size_t i = 0; i < count; i += kStep) {
    const VF velocity = hn::LoadU(DF(), new_u + i);
    const VF now =
        kNesterov ? hn::Add(hn::Mul(s, hn::LoadU(DF(), g + i)), hn::Mul(m, velocity)) : velocity;
    hn::StoreU(hn::Add(hn::LoadU(DF(), v + i), now), DF(), rest + i);
  }
}

// Lines in which something was sent are settled whole.
template <bool kNesterov>
void SettleAheadAtOf(float momentum, float scale, float tail, const uint32_t* positions,
                     size_t kept, size_t begin, const float* g, const float* v, float* new_u,
                     float* rest, size_t count) {
  const VF m = hn::Set(DF(), momentum), s = hn::Set(DF(), scale);
  const auto settle = [&](size_t from, size_t to) HWY_ATTR {
    SettleAheadOf<kNesterov>(momentum, scale, tail, g + from, v + from, new_u + from, rest + from,
                             to - from);
  };
  const auto add = [&](size_t from, size_t to) HWY_ATTR {
    SumAheadOf<kNesterov>(m, s, g + from, v + from, new_u + from, rest + from, to - from);
  };
  size_t done = 0;
  for (size_t k = 0; k < kept;) {
    const size_t line = (positions[k] - begin) / kLanes * kLanes;
    const size_t after = std::min(line + kLanes, count);
    add(done, line);
    settle(line, after);
    while (k < kept && positions[k] - begin < after) ++k;
    done = after;
  }
  const size_t whole_lines = done + (count - done) / kLanes * kLanes;
  add(done, whole_lines);
  settle(whole_lines, count);
}

void SettleAhead(bool nesterov, float momentum, float scale, float tail, const float* g,
                 const float* v, float* new_u, float* rest, size_t count) {
  const auto& settle = nesterov ? SettleAheadOf<true> : SettleAheadOf<false>;
  settle(momentum, scale, tail, g, v, new_u, rest, count);
}

void SettleAheadAt(bool nesterov, float momentum, float scale, float tail,
                   const uint32_t* positions, size_t kept, size_t begin, const float* g,
                   const float* v, float* new_u, float* rest, size_t count) {
  const auto& settle = nesterov ? SettleAheadAtOf<true> : SettleAheadAtOf<false>;
  settle(momentum, scale, tail, positions, kept, begin, g, v, new_u, rest, count);
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(FormAhead);
HWY_EXPORT(SettleAhead);
HWY_EXPORT(SettleAheadAt);
}  // namespace

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

void settle_ahead_at(const MomentumRule& rule, float tail, std::span<const uint32_t> positions,
                     size_t begin, std::span<const float> gradient, std::span<const float> sum,
                     std::span<float> new_velocity, std::span<float> rest) noexcept {
  const auto& settle = HWY_DYNAMIC_DISPATCH(SettleAheadAt);
  parallel_for(rest.size(), kPartUnit, [&](size_t from, size_t to) {
    const auto first = std::lower_bound(positions.begin(), positions.end(), begin + from);
    const auto last = std::lower_bound(first, positions.end(), begin + to);
    const std::span<const uint32_t> here(first, last);
    settle(rule.nesterov, rule.momentum, rule.scale, tail, here.data(), here.size(), begin + from,
           gradient.data() + from, sum.data() + from, new_velocity.data() + from,
           rest.data() + from, to - from);
  });
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
