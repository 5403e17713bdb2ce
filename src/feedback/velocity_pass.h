// form_velocity: the momentum of SGD on a gradient, as `velocity` sends it, and others in a step in
// which nothing waits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "feedback/memory_place.h"
#include "feedback/momentum_rules.h"
#include "kernel/vector_moments.h"

namespace thinwire {

// The moments of `signal`, which begins at value `begin` of a stream. form(range) writes a range of
// it and returns that range's moments. Those of several ranges are not added up, since sums depend
// on where the chunks begin: then the whole is measured.
template <typename Form>
Moments form_ranges(MemoryPlace& place, const MomentumRules& rules, size_t begin,
                    std::span<const float> signal, const Form& form) {
  Moments moments = kernel::moments({});
  rules.each(begin, signal.size(),
             [&](const MomentumRules::Range& range) { moments = form(range); });
  return rules.uniform() ? moments : place.moments(signal);
}

// Spans of the same values of a stream, of which the first is value `begin`.
struct VelocityPass {
  size_t begin;
  std::span<const float> gradient;
  std::span<const float> velocity;
  std::span<float> new_velocity;
  std::span<float> signal;  // may be new_velocity if no tensor has Nesterov's form
};

// u' = momentum u + (1 - dampening) factor g
// signal = u', or (1 - dampening) factor g + momentum u' with nesterov
// Returns the signal's moments.
inline Moments form_velocity(MemoryPlace& place, const MomentumRules& rules, float factor,
                             const VelocityPass& pass) {
  return form_ranges(place, rules, pass.begin, pass.signal, [&](const MomentumRules::Range& range) {
    const auto part = [&](auto span) {
      return span.subspan(range.begin - pass.begin, range.count);
    };
    const auto momentum = static_cast<float>(range.momentum.momentum);
    const float share = factor * rules.share(range.momentum);
    const bool nesterov = range.momentum.nesterov;
    const auto next = part(pass.new_velocity);
    const Moments moments = place.weighted_sum_with_moments(momentum, part(pass.velocity), share,
                                                            part(pass.gradient), next);
    if (pass.signal.data() == pass.new_velocity.data()) return moments;
    return place.weighted_sum_with_moments(nesterov ? share : 0.0f, part(pass.gradient),
                                           nesterov ? momentum : 1.0f, next, part(pass.signal));
  });
}

}  // namespace thinwire
