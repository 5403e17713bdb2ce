// The passes of memories: forming the signal, with its moments, and keeping what was left.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "thinwire/moments.h"

namespace thinwire::kernel {

// All spans of floats in a call have one length. Every product and sum below is rounded to float,
// in the order written, nothing fused: the bits of the plain loop, on every SIMD target.

// out = p a + q b; returns moments(out). `out` may be `a` or `b`.
Moments weighted_sum_with_moments(float p, std::span<const float> a, float q,
                                  std::span<const float> b, std::span<float> out) noexcept;

// out = p a + q b. `out` may be `a` or `b`.
void weighted_sum(float p, std::span<const float> a, float q, std::span<const float> b,
                  std::span<float> out) noexcept;

// How a gradient g becomes a velocity u, and the sum of velocities v.
struct MomentumRule {
  float momentum = 0;     // m
  float scale = 1;        // s, of the gradient
  bool nesterov = false;  // u' = m u + s g and v' = (v + s g) + m u', otherwise v' = v + u'
};

// Writes u' and v', which overlap nothing; returns moments(v').
Moments add_velocity(const MomentumRule& rule, std::span<const float> gradient,
                     std::span<const float> velocity, std::span<const float> sum,
                     std::span<float> new_velocity, std::span<float> new_sum) noexcept;

// Sets u' to zero where something of v' was sent: where `rest` is not v' any more. v' is formed
// again from `sum`, as add_velocity forms it, so that nobody needs to keep it.
void mask_velocity(const MomentumRule& rule, std::span<const float> gradient,
                   std::span<const float> sum, std::span<const float> rest,
                   std::span<float> new_velocity) noexcept;

// The same at `positions` alone, which are distinct, and below the length of the other spans.
void mask_velocity_at(const MomentumRule& rule, std::span<const uint32_t> positions,
                      std::span<const float> gradient, std::span<const float> sum,
                      std::span<const float> rest, std::span<float> new_velocity) noexcept;

// rest = h + ((g - h) - rest): an estimate h of g moved by what was sent of g - h, where `rest` is
// what was left. Where nothing was sent it stays h, bit for bit.
void advance_estimate(std::span<const float> estimate, std::span<const float> gradient,
                      std::span<float> rest) noexcept;

// total += values, then values = total.
void add_and_copy(std::span<float> total, std::span<float> values) noexcept;

}  // namespace thinwire::kernel
