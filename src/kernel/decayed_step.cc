// The step of SGD with decay: three loads and two stores a value.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/decayed_step.h"

#include <cassert>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/decayed_step.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernel/parts.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <bool kNesterov>
void StepAlong(const DecayedStep& n, const float* gradient, float* velocity, float* weights,
               size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto rate = hn::Set(d, n.rate), decay = hn::Set(d, n.decay);
  const auto momentum = hn::Set(d, n.momentum), rest = hn::Set(d, n.rest);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto w = hn::LoadU(d, weights + i);
    const auto own = hn::Mul(decay, w);
    const auto v = hn::Add(hn::Mul(momentum, hn::LoadU(d, velocity + i)), hn::Mul(rest, own));
    const auto along = kNesterov ? hn::Add(own, hn::Mul(momentum, v)) : v;
    hn::StoreU(v, d, velocity + i);
    hn::StoreU(hn::Sub(w, hn::Mul(rate, hn::Add(hn::LoadU(d, gradient + i), along))), d,
               weights + i);
  }
  for (; i < count; ++i) {
    const float own = n.decay * weights[i];
    velocity[i] = n.momentum * velocity[i] + n.rest * own;
    const float along = kNesterov ? own + n.momentum * velocity[i] : velocity[i];
    weights[i] -= n.rate * (gradient[i] + along);
  }
}

void StepDecayed(const DecayedStep& n, const float* gradient, float* velocity, float* weights,
                 size_t count) {
  if (n.nesterov)
    StepAlong<true>(n, gradient, velocity, weights, count);
  else
    StepAlong<false>(n, gradient, velocity, weights, count);
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(StepDecayed);
}  // namespace

void decayed_step(const DecayedStep& numbers, std::span<const float> gradient,
                  std::span<float> velocity, std::span<float> weights) noexcept {
  assert(velocity.size() == gradient.size());
  assert(weights.size() == gradient.size());
  const auto& step = HWY_DYNAMIC_DISPATCH(StepDecayed);
  parallel_for(gradient.size(), kPartUnit, [&](size_t begin, size_t end) {
    step(numbers, gradient.data() + begin, velocity.data() + begin, weights.data() + begin,
         end - begin);
  });
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
