// The passes of the memory `ahead`: forming the signal, and keeping what was left.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel/memory_passes.h"
#include "thinwire/moments.h"

namespace thinwire::kernel {

// As for the passes of kernel/memory_passes.h: all spans of floats in a call have one length, and
// every operation is rounded to float in the order written, with the same bits on every target.

// What a velocity will still add after this step is `tail` u', with tail = m / (1 - m), or m^2 / (1
// - m) with Nesterov's form. A value takes along the share 1 - f of it:
//   d = u', or s g + m u' with Nesterov's form;  v' = v + d
//   f = d / v' within [0, 1], 1 where v' is 0:   1 where nothing waited, near 0 after many steps
//   signal = v' + ((1 - f) tail) u'
// Writes u', v' and the signal, which overlap nothing; returns the signal's moments.
Moments form_ahead(const MomentumRule& rule, float tail, std::span<const float> gradient,
                   std::span<const float> velocity, std::span<const float> sum,
                   std::span<float> new_velocity, std::span<float> new_sum,
                   std::span<float> signal) noexcept;

// After the signal was sent, of which `rest` is left: where something was sent, v' becomes what is
// left, and u' becomes f u'. `new_velocity` and `new_sum` are u' and v' as form_ahead wrote them,
// and the other arguments are the same. The gradient is read with Nesterov's form alone.
void settle_ahead(const MomentumRule& rule, float tail, std::span<const float> gradient,
                  std::span<const float> rest, std::span<float> new_velocity,
                  std::span<float> new_sum) noexcept;

// The same where the values at `positions` alone were sent, and `rest` is the signal elsewhere: few
// other values are read. Positions ascend and count from `begin` values before the spans:
// positions[k] is value positions[k] - begin of them.
void settle_ahead_at(const MomentumRule& rule, float tail, std::span<const uint32_t> positions,
                     size_t begin, std::span<const float> gradient, std::span<const float> rest,
                     std::span<float> new_velocity, std::span<float> new_sum) noexcept;

}  // namespace thinwire::kernel
