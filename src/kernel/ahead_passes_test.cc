// The passes of `ahead` against the plain loop of their comment, bit for bit, on every SIMD target.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/ahead_passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernel/testing/pass_testing.h"

namespace thinwire::kernel {
namespace {

constexpr uint32_t kBegin = 1000;  // of the spans in their stream

class Ahead : public ::testing::TestWithParam<MomentumRule> {};
INSTANTIATE_TEST_SUITE_P(Rules, Ahead,
                         ::testing::Values(MomentumRule{0.9f, 1, false},
                                           MomentumRule{0.9f, 0.25f, false},
                                           MomentumRule{0.0f, 1, false},
                                           MomentumRule{0.9f, 0.3f, true}));

TEST_P(Ahead, TakesMomentumAlongTheLongerAValueWaited) {
  const MomentumRule rule = GetParam();
  const float tail = (rule.nesterov ? rule.momentum * rule.momentum : rule.momentum) / 0.1f;
  on_all([&](size_t count) {
    const Vector g = normals(count, 1), u = normals(count, 2);
    Vector v = normals(count, 3), want_u(count), kept(count), sum(count), want(count);
    for (size_t i = 0; i < count; ++i) {
      const float own = rule.scale * g[i];
      const float old = rule.momentum * u[i];
      want_u[i] = old + own;
      const float later = rule.momentum * want_u[i];
      const float now = rule.nesterov ? own + later : want_u[i];
      if (i % 5 == 0) v[i] = 0;          // nothing waits: f is 1
      if (i % 7 == 0) v[i] = -now;       // v' is 0
      if (i % 11 == 0) v[i] = -2 * now;  // f would be negative
      sum[i] = v[i] + now;
      kept[i] = sum[i] == 0 ? 1.0f : std::min(std::max(now / sum[i], 0.0f), 1.0f);
      const float share = (1 - kept[i]) * tail;
      const float taken = share * want_u[i];
      want[i] = sum[i] + taken;
    }
    Vector new_u(count), new_v(count), rest(count);
    expect_moments_of(form_ahead(rule, tail, g, u, v, new_u, new_v, rest), want);
    expect_same_bits(new_u, want_u);
    expect_same_bits(new_v, sum);
    expect_same_bits(rest, want);

    Vector left = sum;
    for (size_t i = 0; i < count; i += 3) {  // sent whole or in part, where there is something
      if (want[i] == 0) continue;
      left[i] = rest[i] = i % 2 == 0 ? 0.0f : want[i] * 0.5f;
      want_u[i] = kept[i] * want_u[i];
    }
    Vector u_at = new_u, v_at = new_v;
    settle_ahead(rule, tail, g, rest, new_u, new_v);
    expect_same_bits(new_u, want_u);
    expect_same_bits(new_v, left);

    // Those that were sent, and some of which nothing was.
    std::vector<uint32_t> positions;
    for (uint32_t i = 0; i < count; ++i)
      if (i % 3 == 0 || i % 100 == 50) positions.push_back(kBegin + i);
    settle_ahead_at(rule, tail, positions, kBegin, g, rest, u_at, v_at);
    expect_same_bits(u_at, want_u);
    expect_same_bits(v_at, left);
  });
}

// Such vectors are not stored past the cache.
TEST(AheadPasses, AreTheSameWhereVectorsBeginBetweenLines) {
  constexpr size_t kCount = (size_t{1} << 16) + 100;
  const Vector g = normals(kCount, 1), u = normals(kCount, 2), v = normals(kCount, 3);
  Vector want_u(kCount), want_v(kCount), want(kCount);
  form_ahead({0.9f, 1, false}, 9, g, u, v, want_u, want_v, want);
  Vector new_u(kCount + 1), new_v(kCount + 1), signal(kCount + 1);
  const auto odd = [](Vector& vector) { return std::span(vector).subspan(1); };
  form_ahead({0.9f, 1, false}, 9, g, u, v, odd(new_u), odd(new_v), odd(signal));
  expect_same_bits(odd(new_u), want_u);
  expect_same_bits(odd(new_v), want_v);
  expect_same_bits(odd(signal), want);
}

// Where most lines, and many of the first or last ones, have no position.
TEST_P(Ahead, SettlesFewPositionsAsAll) {
  const MomentumRule rule = GetParam();
  on_all([&](size_t count) {
    const Vector g = normals(count, 1), u = normals(count, 2), v = normals(count, 3);
    Vector new_u(count), new_v(count), signal(count);
    form_ahead(rule, 9, g, u, v, new_u, new_v, signal);
    for (const size_t first : {size_t{0}, size_t{40}, count / 2}) {
      std::vector<uint32_t> positions;
      Vector rest = signal;
      for (size_t i = first; i < count && i < first + 3000; i += 97) {
        positions.push_back(kBegin + static_cast<uint32_t>(i));
        rest[i] = 0;
      }
      Vector u_all = new_u, v_all = new_v, u_at = new_u, v_at = new_v;
      settle_ahead(rule, 9, g, rest, u_all, v_all);
      settle_ahead_at(rule, 9, positions, kBegin, g, rest, u_at, v_at);
      expect_same_bits(u_at, u_all);
      expect_same_bits(v_at, v_all);
    }
  });
}

}  // namespace
}  // namespace thinwire::kernel
