// Sums over pairs against a plain loop in the documented order, on every target.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/pair_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/random.h"
#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

std::vector<float> normals(size_t count, uint32_t stream) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_normal({.seed = 5, .stream = stream}, i);
  return values;
}

// Sixteen lanes per chunk of 8192, folded in halves.
template <class Term>
double oracle(size_t count, const Term& term) {
  double total = 0;
  for (size_t begin = 0; begin < count; begin += 8192) {
    double lane[16] = {};
    for (size_t i = begin; i < std::min(begin + 8192, count); ++i) lane[i % 16] += term(i);
    for (size_t half = 8; half > 0; half /= 2)
      for (size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
    total += lane[0];
  }
  return total;
}

TEST(PairSums, AreTheOraclesBits) {
  for (const size_t count : {0, 1, 15, 16, 17, 33, 8191, 8192, 8193, 20011}) {
    const std::vector<float> a = normals(count, 1), b = normals(count, 2);
    const double distance = oracle(count, [&](size_t i) {
      const float difference = a[i] - b[i];
      return static_cast<double>(difference) * difference;
    });
    const double dot = oracle(count, [&](size_t i) { return static_cast<double>(a[i]) * b[i]; });
    for_each_target([&](std::string_view target) {
      SCOPED_TRACE(std::to_string(count) + std::string(" ").append(target));
      EXPECT_EQ(std::bit_cast<uint64_t>(square_distance(a, b)), std::bit_cast<uint64_t>(distance));
      EXPECT_EQ(std::bit_cast<uint64_t>(product(a, b)), std::bit_cast<uint64_t>(dot));
    });
  }
}

TEST(PairSums, OfTheLargestFloats) {
  const std::vector<float> a(40, 3e38f), b(40, -3e38f);
  EXPECT_EQ(square_distance(a, a), 0);
  EXPECT_EQ(square_distance(a, b), std::numeric_limits<double>::infinity());
  EXPECT_NEAR(product(a, b), -40 * 9e76, 1e72);
}

}  // namespace
}  // namespace thinwire::kernel
