// The largest magnitudes against a stable sort, also where a sample misleads.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/top_selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "core/random.h"
#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

using ::testing::ElementsAreArray;

// Larger magnitudes first, equal ones by position, zeros never; then in ascending order.
std::vector<uint32_t> oracle(const std::vector<float>& values, size_t kept) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::abs(values[a]) > std::abs(values[b]);
  });
  order.resize(kept);
  std::erase_if(order, [&](uint32_t position) { return values[position] == 0; });
  std::sort(order.begin(), order.end());
  return order;
}

void expect_exact(const std::vector<float>& values, size_t kept) {
  SCOPED_TRACE(testing::Message() << kept << " of " << values.size());
  static TopSelector aimed(0, 0);  // one that has served others serves as a new one does
  aimed.aim(values.size(), kept);
  EXPECT_THAT(aimed.select(values), ElementsAreArray(oracle(values, kept)));
  TopSelector selector(values.size(), kept);
  const auto want = oracle(values, kept);
  for (int round = 0; round < 2; ++round) {
    const auto got = selector.select(values);
    ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end()));
  }
}

std::vector<float> normals(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_normal({.seed = 9}, i);
  return values;
}

// Large enough to be sampled: 32768 stretches of six.
constexpr size_t kLarge = 200'003;
constexpr size_t kStretch = kLarge / 32768;

TEST(TopSelector, KeepsWhatASortKeeps) {
  kernel::for_each_target([](std::string_view target) {
    SCOPED_TRACE(target);
    for (const size_t count : {1, 2, 3, 64, 1000, 4097}) {
      const auto values = normals(count);
      for (const size_t kept : {size_t{0}, size_t{1}, count / 100, count / 3, count - 1, count})
        expect_exact(values, kept);
    }
    const auto values = normals(kLarge);
    for (const size_t kept : {1, 20, 200, 2000, 20'000, 50'000, 50'001, 150'000, 200'003})
      expect_exact(values, kept);
  });
}

TEST(TopSelector, TakesTiesFromTheLowestPosition) {
  for (const size_t count : {size_t{1000}, kLarge}) {
    std::vector<float> values(count, -2.0f);
    for (const size_t kept : {size_t{1}, count / 100, count / 2, count}) expect_exact(values, kept);
    for (size_t i = 0; i < count; ++i) values[i] = std::round(random_normal({.seed = 9}, i));
    for (const size_t kept : {size_t{1}, count / 100, count / 20, count / 2, count})
      expect_exact(values, kept);
    std::fill(values.begin(), values.end(), 1.0f);  // one that wins, behind all ties
    values.back() = 1.5f;
    for (const size_t kept : {size_t{1}, size_t{2}, count / 100}) expect_exact(values, kept);
  }
}

TEST(TopSelector, NeverKeepsZeros) {
  for (const size_t count : {size_t{1000}, kLarge}) {
    std::vector<float> values(count, -0.0f);
    for (const size_t kept : {size_t{1}, count / 100, count}) expect_exact(values, kept);
    for (size_t i = 0; i < count; i += 500) values[i] = normals(1)[0] + static_cast<float>(i);
    for (const size_t kept : {size_t{1}, count / 500, count / 100, count / 2, count})
      expect_exact(values, kept);
  }
}

TEST(TopSelector, TakesBordersOfTheFloatFormat) {
  for (const size_t count : {size_t{1000}, kLarge}) {
    auto values = normals(count);
    for (float& value : values) value *= 1e-44f;  // a handful of denormals and many zeros
    for (const size_t kept : {count / 1000, count / 100, count / 2}) expect_exact(values, kept);
    for (size_t i = 0; i < count; ++i)
      values[i] = std::ldexp(random_normal({.seed = 9}, i), static_cast<int>(i * 7 % 250) - 125);
    for (const size_t kept : {count / 1000, count / 100, count / 2}) expect_exact(values, kept);
    values[count / 2] = -std::numeric_limits<float>::max();
    expect_exact(values, 1);
  }
}

TEST(TopSelector, IsExactWhenTheSampleMisleads) {
  constexpr size_t kKept = kLarge / 100;
  // Where the sample looks: the golden ratio's place in each stretch.
  std::vector<size_t> sampled;
  for (uint32_t i = 0; i < 32768; ++i)
    sampled.push_back(i * kStretch + (uint64_t{i * 2654435769u} * kStretch >> 32));
  auto values = normals(kLarge);
  for (const size_t position : sampled) values[position] *= 100;  // it sees all of the largest
  expect_exact(values, kKept);
  for (const size_t position : sampled) values[position] *= 1e-5f;  // it sees none of them
  expect_exact(values, kKept);
  for (const size_t position : sampled) values[position] = 0;
  expect_exact(values, kKept);
}

TEST(TopSelector, FindsAClusterInALayerOfItsOwn) {
  auto values = normals(kLarge);
  for (size_t i = 100'000; i < 103'000; ++i) values[i] *= 1000;
  for (const size_t kept : {2000, 3000, 4000}) expect_exact(values, kept);
}

}  // namespace
}  // namespace thinwire::kernel
