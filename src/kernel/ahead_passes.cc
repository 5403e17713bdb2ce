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

// What a value of u' adds to v in this step.
template <bool kNesterov>
HWY_INLINE VF NowOf(VF m, VF s, VF g, VF u) {
  return kNesterov ? hn::Add(hn::Mul(s, g), hn::Mul(m, u)) : u;
}

// f and the signal, of a value of u' and v'.
struct Sent {
  VF kept, signal;
};

HWY_INLINE Sent SentOf(VF tail, VF now, VF u, VF sum) {
  const VF one = hn::Set(DF(), 1.0f);
  const VF share = hn::Min(hn::Max(hn::Div(now, sum), hn::Zero(DF())), one);
  const VF kept = hn::IfThenElse(hn::Eq(sum, hn::Zero(DF())), one, share);
  return {kept, hn::Add(sum, hn::Mul(hn::Mul(hn::Sub(one, kept), tail), u))};
}

// From so many values on u' and v' are stored past the cache: a step reads few of them again.
constexpr size_t kStreamKeptFrom = size_t{1} << 16;

template <bool kNesterov>
Moments FormAheadOf(float momentum, float scale, float tail, const float* g, const float* u,
                    const float* v, float* new_u, float* new_v, float* signal, size_t count,
                    size_t whole, Moments* chunks) {
  const VF m = hn::Set(DF(), momentum), s = hn::Set(DF(), scale), t = hn::Set(DF(), tail);
  const bool stream_kept =
      CanStream(new_u, whole, kStreamKeptFrom) && CanStream(new_v, whole, kStreamKeptFrom);
  const bool stream_signal = CanStream(signal, whole);
  const auto form = [=](VF gradient, VF velocity, VF waiting, VF& next, VF& sum) HWY_ATTR {
    next = hn::Add(hn::Mul(m, velocity), hn::Mul(s, gradient));
    const VF now = NowOf<kNesterov>(m, s, gradient, next);
    sum = hn::Add(waiting, now);
    return SentOf(t, now, next, sum).signal;
  };
  const auto last = [=](size_t i) HWY_ATTR {  // one value, by the same operations
    VF next, sum;
    const VF out = form(hn::Set(DF(), g[i]), hn::Set(DF(), u[i]), hn::Set(DF(), v[i]), next, sum);
    new_u[i] = hn::GetLane(next);
    new_v[i] = hn::GetLane(sum);
    return signal[i] = hn::GetLane(out);
  };
  const auto at = [=](size_t i) HWY_ATTR {
    VF next, sum;
    const VF out =
        form(hn::LoadU(DF(), g + i), hn::LoadU(DF(), u + i), hn::LoadU(DF(), v + i), next, sum);
    if (stream_kept) {
      hn::Stream(next, DF(), new_u + i);
      hn::Stream(sum, DF(), new_v + i);
    } else {
      hn::StoreU(next, DF(), new_u + i);
      hn::StoreU(sum, DF(), new_v + i);
    }
    if (stream_signal)
      hn::Stream(out, DF(), signal + i);
    else
      hn::StoreU(out, DF(), signal + i);
    return out;
  };
  const Moments total = ReduceMoments(chunks, count, at, last, g, u, v);
  if (stream_kept || stream_signal) hwy::FlushStream();
  return total;
}

Moments FormAhead(bool nesterov, float momentum, float scale, float tail, const float* g,
                  const float* u, const float* v, float* new_u, float* new_v, float* signal,
                  size_t count, size_t whole, Moments* chunks) {
  const auto& form = nesterov ? FormAheadOf<true> : FormAheadOf<false>;
  return form(momentum, scale, tail, g, u, v, new_u, new_v, signal, count, whole, chunks);
}

template <bool kNesterov>
void SettleAheadOf(float momentum, float scale, float tail, const float* g, const float* rest,
                   float* new_u, float* new_v, size_t count) {
  const VF m = hn::Set(DF(), momentum), s = hn::Set(DF(), scale), t = hn::Set(DF(), tail);
  const auto settle = [=](VF gradient, VF left, VF& next, VF& sum) HWY_ATTR {
    const Sent was = SentOf(t, NowOf<kNesterov>(m, s, gradient, next), next, sum);
    const auto unsent = hn::Eq(left, was.signal);
    next = hn::IfThenElse(unsent, next, hn::Mul(was.kept, next));
    sum = hn::IfThenElse(unsent, sum, left);
  };
  const size_t lanes = hn::Lanes(DF());
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    VF next = hn::LoadU(DF(), new_u + i), sum = hn::LoadU(DF(), new_v + i);
    // Only Nesterov's form has a use for the gradient.
    settle(kNesterov ? hn::LoadU(DF(), g + i) : next, hn::LoadU(DF(), rest + i), next, sum);
    hn::StoreU(next, DF(), new_u + i);
    hn::StoreU(sum, DF(), new_v + i);
  }
  for (; i < count; ++i) {
    VF next = hn::Set(DF(), new_u[i]), sum = hn::Set(DF(), new_v[i]);
    settle(kNesterov ? hn::Set(DF(), g[i]) : next, hn::Set(DF(), rest[i]), next, sum);
    new_u[i] = hn::GetLane(next);
    new_v[i] = hn::GetLane(sum);
  }
}

void SettleAhead(bool nesterov, float momentum, float scale, float tail, const float* g,
                 const float* rest, float* new_u, float* new_v, size_t count) {
  const auto& settle = nesterov ? SettleAheadOf<true> : SettleAheadOf<false>;
  settle(momentum, scale, tail, g, rest, new_u, new_v, count);
}

// The line of a position is asked for while so many before it are settled: the hardware's prefetch
// does not know where the next one is.
constexpr size_t kFetchEarly = 32;

// Lines in which something was sent are settled whole, and others are not read.
void SettleAheadAt(bool nesterov, float momentum, float scale, float tail,
                   const uint32_t* positions, size_t kept, size_t begin, const float* g,
                   const float* rest, float* new_u, float* new_v, size_t count) {
  for (size_t k = 0; k < kept;) {
    if (k + kFetchEarly < kept) {
      const size_t next = positions[k + kFetchEarly] - begin;
      if (nesterov) hwy::Prefetch(g + next);
      hwy::Prefetch(rest + next);
      hwy::Prefetch(new_u + next);
      hwy::Prefetch(new_v + next);
    }
    const size_t line = (positions[k] - begin) / kLanes * kLanes;
    const size_t after = std::min(line + kLanes, count);
    SettleAhead(nesterov, momentum, scale, tail, g + line, rest + line, new_u + line, new_v + line,
                after - line);
    while (k < kept && positions[k] - begin < after) ++k;
  }
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
                   std::span<float> new_velocity, std::span<float> new_sum,
                   std::span<float> signal) noexcept {
  const auto& form = HWY_DYNAMIC_DISPATCH(FormAhead);
  return moments_of_parts(signal.size(), [&](size_t begin, size_t end, Moments* chunks) {
    return form(rule.nesterov, rule.momentum, rule.scale, tail, gradient.data() + begin,
                velocity.data() + begin, sum.data() + begin, new_velocity.data() + begin,
                new_sum.data() + begin, signal.data() + begin, end - begin, signal.size(), chunks);
  });
}

void settle_ahead(const MomentumRule& rule, float tail, std::span<const float> gradient,
                  std::span<const float> rest, std::span<float> new_velocity,
                  std::span<float> new_sum) noexcept {
  const auto& settle = HWY_DYNAMIC_DISPATCH(SettleAhead);
  parallel_for(rest.size(), kPartUnit, [&](size_t begin, size_t end) {
    settle(rule.nesterov, rule.momentum, rule.scale, tail, gradient.data() + begin,
           rest.data() + begin, new_velocity.data() + begin, new_sum.data() + begin, end - begin);
  });
}

void settle_ahead_at(const MomentumRule& rule, float tail, std::span<const uint32_t> positions,
                     size_t begin, std::span<const float> gradient, std::span<const float> rest,
                     std::span<float> new_velocity, std::span<float> new_sum) noexcept {
  const auto& settle = HWY_DYNAMIC_DISPATCH(SettleAheadAt);
  parallel_for(rest.size(), kPartUnit, [&](size_t from, size_t to) {
    const auto first = std::lower_bound(positions.begin(), positions.end(), begin + from);
    const auto last = std::lower_bound(first, positions.end(), begin + to);
    const std::span<const uint32_t> here(first, last);
    settle(rule.nesterov, rule.momentum, rule.scale, tail, here.data(), here.size(), begin + from,
           gradient.data() + from, rest.data() + from, new_velocity.data() + from,
           new_sum.data() + from, to - from);
  });
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
