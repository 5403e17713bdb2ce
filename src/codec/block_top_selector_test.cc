// Tests of BlockTopSelector against a full sort of each block.
// SPDX-License-Identifier: Apache-2.0
#include "codec/block_top_selector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "codec/sparse_codec.h"
#include "core/random.h"
#include "kernel/for_each_target.h"

namespace thinwire {
namespace {

std::vector<uint32_t> oracle(const std::vector<float>& values, size_t block, double density) {
  std::vector<uint32_t> all;
  for (size_t begin = 0; begin < values.size(); begin += block) {
    const size_t count = std::min(block, values.size() - begin);
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), static_cast<uint32_t>(begin));
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return std::abs(values[a]) > std::abs(values[b]);
    });
    order.resize(kept_target(density, count));
    std::erase_if(order, [&](uint32_t position) { return values[position] == 0; });
    std::sort(order.begin(), order.end());
    all.insert(all.end(), order.begin(), order.end());
  }
  return all;
}

void expect_exact(const std::vector<float>& values) {
  for (const size_t block : {1, 3, 64, 100, 512, 5000, 1'000'000})
    for (const double density : {1e-6, 0.01, 0.1, 0.6, 1.0}) {
      SCOPED_TRACE(testing::Message() << values.size() << " by " << block << " at " << density);
      BlockTopSelector selector(values.size(), block, density);
      const auto want = oracle(values, block, density);
      EXPECT_GE(selector.kept(), want.size());
      for (int round = 0; round < 2; ++round) {
        const auto got = selector.select(values);
        ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end()));
      }
    }
}

std::vector<float> normals(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_normal({.seed = 9}, i);
  return values;
}

TEST(BlockTopSelector, KeepsWhatASortOfEachBlockKeeps) {
  kernel::for_each_target([](std::string_view target) {
    SCOPED_TRACE(target);
    for (const size_t count : {0, 1, 2, 63, 65, 4096, 20'011}) expect_exact(normals(count));
  });
}

TEST(BlockTopSelector, TakesTiesAndZeros) {
  auto values = normals(20'011);
  for (float& value : values) value = std::round(value);
  expect_exact(values);
  expect_exact(std::vector<float>(20'011, -3.0f));
  expect_exact(std::vector<float>(20'011, 0.0f));
  std::vector<float> sparse(20'011);
  for (size_t i = 0; i < sparse.size(); i += 700) sparse[i] = values[i] + 1.5f;
  expect_exact(sparse);
}

// The guess is far off at every border, up and down.
TEST(BlockTopSelector, TakesNeighboursThatAreNotAlike) {
  auto values = normals(20'011);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(values[i], static_cast<int>(i / 1500 * 57 % 250) - 125);
  expect_exact(values);
  values[11'111] = -std::numeric_limits<float>::max();
  values[3] = std::numeric_limits<float>::denorm_min();
  expect_exact(values);
  for (float& value : values) value = std::copysign(std::numeric_limits<float>::max(), value);
  expect_exact(values);
}

}  // namespace
}  // namespace thinwire
