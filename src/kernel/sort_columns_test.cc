// Columns sorted by the network against std::sort, for every number of rows and odd widths.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/sort_columns.h"

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

std::vector<float> values(size_t count) {
  std::vector<float> made(count);
  for (size_t i = 0; i < count; ++i) made[i] = random_normal({.seed = 3}, i);
  return made;
}

// Columns [begin, begin + width), each by itself, in the documented order.
std::vector<float> oracle(const std::vector<float>& rows, size_t count, size_t begin,
                          size_t width) {
  const size_t stride = rows.size() / count;
  const auto before = [](float a, float b) {
    const auto ordered = [](float x) {
      const auto bits = std::bit_cast<int32_t>(x);
      return bits < 0 ? -static_cast<int64_t>(bits & 0x7FFFFFFF) - 1 : static_cast<int64_t>(bits);
    };
    return ordered(a) < ordered(b);
  };
  std::vector<float> sorted(count * width);
  for (size_t i = 0; i < width; ++i) {
    std::vector<float> column;
    for (size_t row = 0; row < count; ++row) column.push_back(rows[row * stride + begin + i]);
    std::sort(column.begin(), column.end(), before);
    for (size_t row = 0; row < count; ++row) sorted[row * width + i] = column[row];
  }
  return sorted;
}

std::vector<uint32_t> bits(const std::vector<float>& of) {
  std::vector<uint32_t> all;
  for (const float x : of) all.push_back(std::bit_cast<uint32_t>(x));
  return all;
}

void expect_sorted(const std::vector<float>& rows, size_t count, size_t begin, size_t width) {
  const std::vector<uint32_t> want = bits(oracle(rows, count, begin, width));
  for_each_target([&](std::string_view target) {
    std::vector<float> sorted(count * width);
    sort_columns(rows, count, begin, sorted);
    EXPECT_EQ(bits(sorted), want) << count << " rows, " << width << " columns from " << begin
                                  << " by " << target;
  });
}

TEST(SortColumns, SortsAnyNumberOfRows) {
  for (size_t count = 1; count <= 70; ++count) expect_sorted(values(count * 80), count, 0, 80);
  expect_sorted(values(1000 * 3), 1000, 0, 3);
}

TEST(SortColumns, TakesAnyColumns) {
  for (const size_t width : {0, 1, 7, 63, 64, 65, 128, 200})
    for (const size_t begin : {0, 1, 5}) expect_sorted(values(9 * 210), 9, begin, width);
}

// 0-1 principle: a network that sorts all columns of zeros and ones sorts everything.
TEST(SortColumns, SortsAllZerosAndOnes) {
  for (size_t count = 1; count <= 12; ++count) {
    const size_t width = size_t{1} << count;
    std::vector<float> rows(count * width);
    for (size_t row = 0; row < count; ++row)
      for (size_t i = 0; i < width; ++i) rows[row * width + i] = static_cast<float>((i >> row) & 1);
    expect_sorted(rows, count, 0, width);
  }
}

TEST(SortColumns, OrdersZerosInfinitiesAndNaN) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> odd = {0.0f, -kNan, 1e-45f, kInf, -0.0f, -1e-45f, kNan, -kInf, 3e38f};
  for (size_t shift = 0; shift < odd.size(); ++shift) {
    std::vector<float> column = odd;
    std::rotate(column.begin(), column.begin() + static_cast<std::ptrdiff_t>(shift), column.end());
    expect_sorted(column, column.size(), 0, 1);
  }
}

}  // namespace
}  // namespace thinwire::kernel
