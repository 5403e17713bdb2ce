// The k-th magnitude against std::sort.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/kth_magnitude.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "core/random.h"

namespace thinwire::kernel {
namespace {

void expect_as_sorted(const std::vector<float>& values) {
  std::vector<float> sorted;
  for (const float value : values) sorted.push_back(std::abs(value));
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  for (size_t k = 1; k <= values.size(); k += 1 + values.size() / 100) {
    const KthMagnitude got = kth_magnitude(values, k);
    EXPECT_EQ(got.magnitude, sorted[k - 1]) << k;
    EXPECT_FALSE(std::signbit(got.magnitude));
    const auto larger = std::find(sorted.begin(), sorted.end(), sorted[k - 1]) - sorted.begin();
    EXPECT_EQ(got.above, static_cast<size_t>(larger)) << k;
  }
}

TEST(KthMagnitude, IsThatOfTheSortedVector) {
  for (const size_t count : {1, 2, 3, 100, 101, 5000}) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = random_normal({.seed = 1}, i);
    expect_as_sorted(values);
    for (float& value : values) value = std::round(4 * value) / 4;  // many ties, many zeros
    expect_as_sorted(values);
    for (size_t i = 0; i < count; ++i)
      values[i] = std::ldexp(values[i], static_cast<int>(i % 250) - 140);
    expect_as_sorted(values);
  }
}

TEST(KthMagnitude, TellsLastBitsApart) {
  std::vector<float> values;
  float value = 1.0f;
  for (int i = 0; i < 3000; ++i) {
    values.push_back(i % 2 ? value : -value);
    value = std::nextafter(value, 2.0f);
  }
  expect_as_sorted(values);
}

TEST(KthMagnitude, TakesBordersOfTheFloatFormat) {
  using Limits = std::numeric_limits<float>;
  expect_as_sorted({0.0f, -0.0f, Limits::denorm_min(), -Limits::denorm_min(), Limits::min(),
                    -Limits::max(), Limits::max(), Limits::infinity()});
  expect_as_sorted(std::vector<float>(1000, 0.0f));
  expect_as_sorted(std::vector<float>(1000, -3.0f));
}

}  // namespace
}  // namespace thinwire::kernel
