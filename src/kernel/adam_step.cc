// Adam's step: four loads, three stores, one square root and two divisions a value.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/adam_step.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/adam_step.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernel/parts.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void AdamStep(const AdamNumbers& n, const float* gradient, float* mean, float* square,
              float* weights, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto beta1 = hn::Set(d, n.beta1), rest1 = hn::Set(d, n.rest1);
  const auto beta2 = hn::Set(d, n.beta2), rest2 = hn::Set(d, n.rest2);
  const auto rate = hn::Set(d, n.rate), scale = hn::Set(d, n.square_scale);
  const auto epsilon = hn::Set(d, n.epsilon), decay = hn::Set(d, n.decay);
  const auto least = hn::Set(d, n.least);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto w = hn::LoadU(d, weights + i);
    const auto g = hn::Add(hn::LoadU(d, gradient + i), hn::Mul(decay, w));
    const auto m = hn::Add(hn::Mul(beta1, hn::LoadU(d, mean + i)), hn::Mul(rest1, g));
    const auto v = hn::Add(hn::Mul(beta2, hn::LoadU(d, square + i)), hn::Mul(hn::Mul(rest2, g), g));
    const auto root = hn::Max(hn::Div(hn::Sqrt(v), scale), hn::Mul(least, hn::Abs(m)));
    const auto under = hn::Add(root, epsilon);
    hn::StoreU(m, d, mean + i);
    hn::StoreU(v, d, square + i);
    hn::StoreU(hn::Sub(w, hn::Div(hn::Mul(rate, m), under)), d, weights + i);
  }
  for (; i < count; ++i) {
    const float g = gradient[i] + n.decay * weights[i];
    mean[i] = n.beta1 * mean[i] + n.rest1 * g;
    square[i] = n.beta2 * square[i] + n.rest2 * g * g;
    const float root = std::max(std::sqrt(square[i]) / n.square_scale, n.least * std::abs(mean[i]));
    weights[i] -= n.rate * mean[i] / (root + n.epsilon);
  }
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(AdamStep);
}  // namespace

void adam_step(const AdamNumbers& numbers, std::span<const float> gradient, std::span<float> mean,
               std::span<float> square, std::span<float> weights) noexcept {
  assert(mean.size() == gradient.size());
  assert(square.size() == gradient.size());
  assert(weights.size() == gradient.size());
  const auto& step = HWY_DYNAMIC_DISPATCH(AdamStep);
  parallel_for(gradient.size(), kPartUnit, [&](size_t begin, size_t end) {
    step(numbers, gradient.data() + begin, mean.data() + begin, square.data() + begin,
         weights.data() + begin, end - begin);
  });
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
