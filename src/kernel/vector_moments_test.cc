// Moments against a plain loop in long double, for every length near a border.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/vector_moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/aligned.h"
#include "core/random.h"
#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

std::vector<float> normals(size_t count, uint32_t stream) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_normal({.seed = 1, .stream = stream}, i);
  return values;
}

// The documented order, written plainly: sixteen lanes per chunk of 8192, folded in halves.
Moments oracle(std::span<const float> values) {
  Moments total;
  for (size_t begin = 0; begin < values.size(); begin += 8192) {
    double abs_sum[16] = {}, square_sum[16] = {};
    for (size_t i = begin; i < std::min(begin + 8192, values.size()); ++i) {
      const double x = std::abs(values[i]);
      abs_sum[i % 16] += x;
      square_sum[i % 16] += x * x;
      total.abs_max = std::max(total.abs_max, std::abs(values[i]));
    }
    for (size_t half = 8; half > 0; half /= 2)
      for (size_t i = 0; i < half; ++i) {
        abs_sum[i] += abs_sum[i + half];
        square_sum[i] += square_sum[i + half];
      }
    total.abs_sum += abs_sum[0];
    total.square_sum += square_sum[0];
  }
  for (const float x : values) total.finite &= std::isfinite(x);
  return total;
}

void expect_same_bits(const Moments& got, const Moments& want) {
  EXPECT_EQ(std::bit_cast<uint64_t>(got.abs_sum), std::bit_cast<uint64_t>(want.abs_sum));
  EXPECT_EQ(std::bit_cast<uint64_t>(got.square_sum), std::bit_cast<uint64_t>(want.square_sum));
  EXPECT_EQ(std::bit_cast<uint32_t>(got.abs_max), std::bit_cast<uint32_t>(want.abs_max));
  EXPECT_EQ(got.finite, want.finite);
}

const size_t kCounts[] = {0,    1,    2,    15,   16,    17,    31,    33,
                          8191, 8192, 8193, 8207, 16384, 40000, 100003};

TEST(Moments, AreTheOraclesBits) {
  for (const size_t count : kCounts) {
    const auto values = normals(count + 1, 2);
    const auto first = std::span(values).first(count), last = std::span(values).subspan(1);
    const Moments of_first = oracle(first), of_last = oracle(last);
    for_each_target([&](std::string_view target) {
      SCOPED_TRACE(std::to_string(count) + std::string(" ").append(target));
      expect_same_bits(moments(first), of_first);
      expect_same_bits(moments(last), of_last);
    });
  }
}

TEST(Moments, OfASumAreThoseOfItsResult) {
  for (const size_t count : kCounts) {
    const auto a = normals(count, 3), b = normals(count, 4);
    std::vector<float> want(count);
    for (size_t i = 0; i < count; ++i) want[i] = a[i] + b[i];
    const Moments of_want = oracle(want);
    for_each_target([&](std::string_view target) {
      SCOPED_TRACE(std::to_string(count) + std::string(" ").append(target));
      std::vector<float> out(count);
      expect_same_bits(add_with_moments(a, b, out), of_want);
      EXPECT_EQ(out, want);
      out = a;
      expect_same_bits(add_with_moments(out, b, out), of_want);
      EXPECT_EQ(out, want);
      out = b;
      expect_same_bits(add_with_moments(a, out, out), of_want);
      EXPECT_EQ(out, want);
    });
  }
}

// Long enough for non-temporal stores, on and off the border of a vector.
TEST(Moments, OfALongSumAreThoseOfItsResult) {
  constexpr size_t kCount = (size_t{1} << 21) + 5;
  const auto a = normals(kCount, 5), b = normals(kCount, 6);
  AlignedVector<float> want(kCount);
  for (size_t i = 0; i < kCount; ++i) want[i] = a[i] + b[i];
  const Moments of_want = oracle(want);
  AlignedVector<float> room(kCount + 16);
  for (const size_t offset : {0, 1, 4, 8}) {
    const auto out = std::span(room).subspan(offset, kCount);
    for_each_target([&](std::string_view target) {
      SCOPED_TRACE(std::to_string(offset) + std::string(" ").append(target));
      std::fill(room.begin(), room.end(), 0.0f);
      expect_same_bits(add_with_moments(a, b, out), of_want);
      EXPECT_TRUE(std::equal(out.begin(), out.end(), want.begin()));
    });
  }
}

TEST(Moments, ReportNaNAndInfWhereverTheyAre) {
  for (const size_t at : {size_t{0}, size_t{7}, size_t{8191}, size_t{8192}, size_t{10001}}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::signaling_NaN(),
          std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
      auto values = normals(10002, 7);
      EXPECT_TRUE(moments(values).finite);
      values[at] = bad;
      EXPECT_FALSE(moments(values).finite);
      const std::vector<float> zeros(values.size());
      std::vector<float> out(values.size());
      EXPECT_FALSE(add_with_moments(values, zeros, out).finite);
    }
  }
}

TEST(Moments, OfASumThatOverflowsAreNotFinite) {
  const std::vector<float> largest(20, std::numeric_limits<float>::max());
  std::vector<float> out(20);
  EXPECT_FALSE(add_with_moments(largest, largest, out).finite);
}

TEST(Moments, HoldTheLargestAndSmallestFloats) {
  const std::vector<float> largest(100000, -std::numeric_limits<float>::max());
  const Moments big = moments(largest);
  EXPECT_TRUE(big.finite);
  EXPECT_EQ(big.abs_max, std::numeric_limits<float>::max());
  EXPECT_DOUBLE_EQ(big.abs_sum, 1e5 * std::numeric_limits<float>::max());
  const std::vector<float> smallest(64, std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(moments(smallest).square_sum, 64 * std::ldexp(1.0, -298));
}

TEST(Moments, ScaleExactlyByPowersOfTwo) {
  auto values = normals(50000, 8);
  const Moments before = moments(values);
  for (float& value : values) value *= 0x1p-40f;
  const Moments after = moments(values);
  EXPECT_EQ(after.abs_sum, before.abs_sum * 0x1p-40);
  EXPECT_EQ(after.square_sum, before.square_sum * 0x1p-80);
}

TEST(ValueSum, HasTheDocumentedOrderOnEveryTarget) {
  for (const size_t count : kCounts) {
    auto values = normals(count, 3);
    for (size_t i = 0; i < count; i += 100) values[i] *= 1e30f;  // some cancel the others out
    double want = 0;
    for (size_t begin = 0; begin < count; begin += kSumChunk) {
      double sum[16] = {};
      for (size_t i = begin; i < std::min(begin + kSumChunk, count); ++i) sum[i % 16] += values[i];
      for (size_t half = 8; half > 0; half /= 2)
        for (size_t i = 0; i < half; ++i) sum[i] += sum[i + half];
      want += sum[0];
    }
    for_each_target([&](std::string_view target) {
      SCOPED_TRACE(testing::Message() << target << ", " << count);
      EXPECT_EQ(std::bit_cast<uint64_t>(value_sum(values)), std::bit_cast<uint64_t>(want));
    });
  }
}

}  // namespace
}  // namespace thinwire::kernel
