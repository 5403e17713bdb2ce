// Every pass against the plain loop of its comment, bit for bit, on every SIMD target.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/memory_passes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "kernel/testing/pass_testing.h"

namespace thinwire::kernel {
namespace {

TEST(WeightedSum, IsThePlainLoopWithAndWithoutMoments) {
  on_all([](size_t count) {
    const Vector a = normals(count, 1), b = normals(count, 2);
    for (const auto& [p, q] : {std::pair(1.0f, 1.0f), {0.3f, -0.7f}, {1.0f, -1.0f}, {0.0f, 2.0f}}) {
      Vector want(count), out(count, 5.0f), room(count + 1);
      for (size_t i = 0; i < count; ++i) {
        const float left = p * a[i], right = q * b[i];
        want[i] = left + right;
      }
      expect_moments_of(weighted_sum_with_moments(p, a, q, b, out), want);
      expect_same_bits(out, want);
      const auto odd = std::span(room).subspan(1);  // off the border of a vector
      expect_moments_of(weighted_sum_with_moments(p, a, q, b, odd), want);
      expect_same_bits(odd, want);
      out = a;
      expect_moments_of(weighted_sum_with_moments(p, out, q, b, out), want);
      expect_same_bits(out, want);
      out = b;
      weighted_sum(p, a, q, out, out);
      expect_same_bits(out, want);
    }
  });
}

TEST(WeightedSum, WithWeightsOfOneIsAddWithMoments) {
  const Vector a = normals(10007, 3), b = normals(10007, 4);
  Vector sum(a.size()), weighted(a.size());
  add_with_moments(a, b, sum);
  expect_moments_of(weighted_sum_with_moments(1, a, 1, b, weighted), sum);
  expect_same_bits(weighted, sum);
}

TEST(WeightedSum, ReportsWhatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Vector a = normals(100, 5), out(100), other(100);
    const Vector b(100);
    EXPECT_TRUE(weighted_sum_with_moments(0.5f, a, 0.5f, b, out).finite);
    a[71] = bad;
    EXPECT_FALSE(weighted_sum_with_moments(0.5f, a, 0.5f, b, out).finite);
    EXPECT_FALSE(add_velocity({.momentum = 0.9f}, a, b, b, out, other).finite);
  }
}

class Velocity : public ::testing::TestWithParam<MomentumRule> {};
INSTANTIATE_TEST_SUITE_P(Rules, Velocity,
                         ::testing::Values(MomentumRule{0.9f, 1, false},
                                           MomentumRule{0.9f, 0.25f, false},
                                           MomentumRule{0.0f, 1, false},
                                           MomentumRule{0.9f, 0.3f, true}));

TEST_P(Velocity, IsThePlainLoopAndItsMaskFindsWhatWasSent) {
  const MomentumRule rule = GetParam();
  on_all([&](size_t count) {
    const Vector g = normals(count, 1), u = normals(count, 2), v = normals(count, 3);
    Vector want_u(count), want_v(count), new_u(count), new_v(count);
    for (size_t i = 0; i < count; ++i) {
      const float own = rule.scale * g[i];
      const float kept = rule.momentum * u[i];
      want_u[i] = kept + own;
      const float ahead = rule.momentum * want_u[i];
      want_v[i] = rule.nesterov ? (v[i] + own) + ahead : v[i] + want_u[i];
    }
    expect_moments_of(add_velocity(rule, g, u, v, new_u, new_v), want_v);
    expect_same_bits(new_u, want_u);
    expect_same_bits(new_v, want_v);

    for (size_t i = 0; i < count; i += 3) {  // sent whole, sent in part, or not
      new_v[i] = i % 2 == 0 ? 0.0f : new_v[i] * 0.5f;
      want_u[i] = 0.0f;
    }
    Vector at = new_u;
    mask_velocity(rule, g, v, new_v, new_u);
    expect_same_bits(new_u, want_u);

    // Those that were sent, and some of which nothing was.
    std::vector<uint32_t> positions;
    for (uint32_t i = 0; i < count; ++i)
      if (i % 3 == 0 || i % 5 == 0) positions.push_back(i);
    mask_velocity_at(rule, positions, g, v, new_v, at);
    expect_same_bits(at, want_u);
    Vector untouched = want_v;
    mask_velocity_at(rule, {}, g, v, new_v, untouched);
    expect_same_bits(untouched, want_v);
  });
}

TEST(Estimate, MovesByWhatWasSent) {
  on_all([](size_t count) {
    const Vector h = normals(count, 1), g = normals(count, 2);
    Vector rest(count), want = h;
    weighted_sum(1, g, -1, h, rest);
    for (size_t i = 0; i < count; i += 3) {
      const float change = rest[i];
      rest[i] = i % 2 == 0 ? 0.0f : change * 0.25f;
      want[i] = h[i] + (change - rest[i]);
    }
    advance_estimate(h, g, rest);
    expect_same_bits(rest, want);
  });
}

TEST(Estimate, OfTheMeanIsAddedUpAndHandedOut) {
  on_all([](size_t count) {
    Vector total = normals(count, 1), values = normals(count, 2), want(count);
    for (size_t i = 0; i < count; ++i) want[i] = total[i] + values[i];
    add_and_copy(total, values);
    expect_same_bits(total, want);
    expect_same_bits(values, want);
  });
}

}  // namespace
}  // namespace thinwire::kernel
