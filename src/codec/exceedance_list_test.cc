// Tests of ExceedanceList against plain loops and a full sort.
// SPDX-License-Identifier: Apache-2.0
#include "codec/exceedance_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random.h"
#include "kernel/for_each_target.h"

namespace thinwire {
namespace {

// Normals rounded to sixteenths: plenty of equal magnitudes.
std::vector<float> coarse(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = std::round(16 * random_normal({.seed = 3}, i)) / 16;
  return values;
}

// Positions of the `most` largest magnitudes above `threshold`, lower positions first among equals.
std::vector<uint32_t> oracle(const std::vector<float>& values, float threshold, size_t most) {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < values.size(); ++i)
    if (std::abs(values[i]) > threshold) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::abs(values[a]) > std::abs(values[b]);
  });
  order.resize(std::min(order.size(), most));
  std::sort(order.begin(), order.end());
  return order;
}

void expect_list(const ExceedanceList& list, const std::vector<float>& values,
                 const std::vector<uint32_t>& want) {
  ASSERT_EQ(list.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(list.positions()[i], want[i]);
    ASSERT_EQ(list.values()[i], values[want[i]]);
  }
}

std::vector<float> with_zeros_at(std::vector<float> values, const std::vector<uint32_t>& at) {
  for (const uint32_t position : at) values[position] = 0;
  return values;
}

TEST(ExceedanceList, SelectsTheLargest) {
  for (const size_t count : {1u, 100u, 5000u, 60000u}) {
    auto values = coarse(count);
    for (const bool ascending : {false, true}) {  // ascending: every value beats all before it
      if (ascending)
        std::sort(values.begin(), values.end(),
                  [](float a, float b) { return std::abs(a) < std::abs(b); });
      for (const float threshold : {0.0f, 0.5f, 2.0f, 9.0f})
        for (const size_t most : {size_t{1}, size_t{7}, size_t{1000}, count}) {
          const auto want = oracle(values, threshold, most);
          kernel::for_each_target([&](std::string_view target) {
            SCOPED_TRACE(std::to_string(count) + " " + std::to_string(most) + " " +
                         std::string(target));
            ExceedanceList list;
            list.select(values, threshold, most, {});
            expect_list(list, values, want);

            std::vector<float> rest(count, 5.0f);
            list.select(values, threshold, most, rest);  // again, into the same buffers
            expect_list(list, values, want);
            EXPECT_EQ(rest, with_zeros_at(values, want));

            rest = values;
            list.select(rest, threshold, most, rest);
            expect_list(list, values, want);
            EXPECT_EQ(rest, with_zeros_at(values, want));
          });
        }
    }
  }
}

TEST(ExceedanceList, CollectsAllOrSaysNo) {
  const auto values = coarse(50000);
  const auto want = oracle(values, 1, values.size());
  ExceedanceList list;
  EXPECT_TRUE(list.collect(values, 1, want.size()));
  expect_list(list, values, want);
  EXPECT_TRUE(list.collect(values, 1, values.size()));  // the buffers are larger now
  expect_list(list, values, want);
  for (const size_t limit : {want.size() - 1, size_t{5}, size_t{0}}) {
    EXPECT_FALSE(list.collect(values, 1, limit));
    EXPECT_FALSE(ExceedanceList().collect(values, 1, limit));
  }
  EXPECT_TRUE(list.collect(values, 1e9f, 0));
  EXPECT_EQ(list.size(), 0u);
}

TEST(ExceedanceList, CompactsAndKeepsTheLargest) {
  const auto values = coarse(20000);
  ExceedanceList list;
  ASSERT_TRUE(list.collect(values, 0.5f, values.size()));
  list.compact(1);
  expect_list(list, values, oracle(values, 1, values.size()));
  const auto want = oracle(values, 1, 333);
  float least = 1e9f;
  for (const uint32_t position : want) least = std::min(least, std::abs(values[position]));
  EXPECT_EQ(list.keep_largest(333, {}), least);
  expect_list(list, values, want);
  EXPECT_EQ(list.keep_largest(333, {}), least);
  EXPECT_EQ(list.keep_largest(1000, {}), least);
  expect_list(list, values, want);
}

TEST(ExceedanceList, TakesOneSignOnly) {
  const auto values = coarse(60000);
  for (const kernel::Side side : {kernel::Side::kPositive, kernel::Side::kNegative}) {
    auto of_side = values;
    for (float& value : of_side)
      if (std::signbit(value) != (side == kernel::Side::kNegative)) value = 0;
    ExceedanceList list;
    list.only(side);
    for (const size_t most : {size_t{50}, size_t{60000}}) {
      const auto want = oracle(of_side, 1.5f, most);
      std::vector<float> rest(values.size());
      list.select(values, 1.5f, most, rest);
      expect_list(list, values, want);
      EXPECT_EQ(rest, with_zeros_at(values, want));
    }
    EXPECT_TRUE(list.collect(values, 1.5f, 60000));
    expect_list(list, values, oracle(of_side, 1.5f, 60000));
    std::vector<float> rest(values.size());
    list.leave(values, rest);
    EXPECT_EQ(rest, with_zeros_at(values, oracle(of_side, 1.5f, 60000)));
  }
}

}  // namespace
}  // namespace thinwire
