// The transform against its definition and against plain stages, and signs bit by bit, on every
// target.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/walsh.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "core/random.h"
#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

using Values = std::vector<float>;

Values normal(size_t count, uint64_t seed = 1) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_normal({.seed = seed}, i);
  return values;
}

Values by_plain_stages(Values values) {
  for (size_t h = 1; h < values.size(); h *= 2)
    for (size_t i = 0; i < values.size(); ++i) {
      if ((i & h) != 0) continue;
      const float a = values[i], b = values[i + h];
      values[i] = a + b;
      values[i + h] = a - b;
    }
  return values;
}

TEST(WalshHadamard, IsTheSumOfItsDefinition) {
  for (const size_t n : {1u, 2u, 4u, 32u, 64u, 128u, 1024u}) {
    const Values values = normal(n);
    Values got = values;
    walsh_hadamard(got);
    for (size_t u = 0; u < n; ++u) {
      double sum = 0;
      for (size_t x = 0; x < n; ++x) sum += std::popcount(u & x) % 2 == 1 ? -values[x] : values[x];
      ASSERT_NEAR(got[u], sum, 1e-6 * static_cast<double>(n)) << n << ": " << u;
    }
  }
}

TEST(WalshHadamard, HasTheBitsOfPlainStagesOnEveryTarget) {
  for (size_t n = 1; n <= 1u << 16; n *= 2) {
    const Values values = normal(n, n), expected = by_plain_stages(values);
    for_each_target([&](std::string_view target) {
      Values got = values;
      walsh_hadamard(got);
      EXPECT_EQ(got, expected) << n << " on " << target;
    });
  }
}

TEST(WalshHadamard, TwiceIsTheSizeTimesTheValues) {
  for (const size_t n : {2u, 64u, 512u, 4096u}) {
    const Values values = normal(n);
    Values twice = values;
    walsh_hadamard(twice);
    walsh_hadamard(twice);
    const auto size = static_cast<double>(n);
    for (size_t i = 0; i < n; ++i) ASSERT_NEAR(twice[i], size * values[i], 1e-5 * size) << n;
  }
}

TEST(FlipSigns, FollowsTheBitsOnEveryTarget) {
  for (const size_t n : {0u, 1u, 7u, 31u, 32u, 33u, 64u, 100u, 4096u}) {
    const Values values = normal(n);
    std::vector<uint32_t> bits((n + 31) / 32);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = random_word({.seed = 3}, i);
    Values expected = values;
    for (size_t i = 0; i < n; ++i)
      if ((bits[i / 32] >> i % 32 & 1) != 0) expected[i] = -values[i];
    for_each_target([&](std::string_view target) {
      Values out(n, NAN), in_place = values;
      flip_signs(bits, values, out);
      flip_signs(bits, in_place, in_place);
      EXPECT_EQ(out, expected) << n << " on " << target;
      EXPECT_EQ(in_place, expected) << n << " on " << target;
    });
  }
}

}  // namespace
}  // namespace thinwire::kernel
