// Masked sums, compaction and logarithms against plain loops, on every SIMD target.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/tail_moments.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/random.h"
#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> normals(size_t count, uint32_t stream) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_normal({.seed = 2, .stream = stream}, i);
  return values;
}

// The documented order, written plainly: sixteen lanes per chunk of 8192, folded in halves.
TailMoments oracle(std::span<const float> values, float threshold) {
  TailMoments total{.smallest = kInfinity};
  for (size_t begin = 0; begin < values.size(); begin += 8192) {
    double sum[16] = {}, square_sum[16] = {};
    for (size_t i = begin; i < std::min(begin + 8192, values.size()); ++i) {
      const float magnitude = std::abs(values[i]);
      if (!(magnitude > threshold)) continue;
      const double excess = magnitude - threshold;
      sum[i % 16] += excess;
      square_sum[i % 16] += excess * excess;
      total.smallest = std::min(total.smallest, magnitude);
      ++total.count;
    }
    for (size_t half = 8; half > 0; half /= 2)
      for (size_t i = 0; i < half; ++i) {
        sum[i] += sum[i + half];
        square_sum[i] += square_sum[i + half];
      }
    total.sum += sum[0];
    total.square_sum += square_sum[0];
  }
  return total;
}

const size_t kCounts[] = {0, 1, 7, 15, 16, 17, 31, 8191, 8192, 8193, 16400, 100003};

TEST(TailMoments, AreTheOraclesBits) {
  for (const size_t count : kCounts) {
    const auto values = normals(count, 1);
    for (const float threshold : {0.0f, 0.3f, 1.0f, 3.0f, 100.0f}) {
      const TailMoments want = oracle(values, threshold);
      for_each_target([&](std::string_view target) {
        EXPECT_EQ(tail_moments(values, threshold), want) << count << " " << threshold << target;
      });
    }
  }
}

TEST(TailMoments, CompareStrictlyAndFindTheExactMinimum) {
  std::vector<float> values(1000, 1.0f);
  values[500] = std::nextafter(1.0f, 2.0f);
  values[700] = -values[500];
  for_each_target([&](std::string_view target) {
    const TailMoments tail = tail_moments(values, 1.0f);
    EXPECT_EQ(tail.count, 2u) << target;
    EXPECT_EQ(tail.smallest, values[500]) << target;
    EXPECT_EQ(tail_moments(values, values[500]).count, 0u) << target;
    EXPECT_EQ(tail_moments(values, values[500]).smallest, kInfinity) << target;
    EXPECT_EQ(tail_moments({}, 0).count, 0u) << target;
  });
}

TEST(TailMoments, HoldTheLargestAndSmallestFloats) {
  std::vector<float> values(40, std::numeric_limits<float>::max());
  values[3] = -std::numeric_limits<float>::denorm_min();
  for_each_target([&](std::string_view target) {
    const TailMoments tail = tail_moments(values, 0.0f);
    EXPECT_EQ(tail.count, 40u) << target;
    EXPECT_EQ(tail.smallest, -values[3]) << target;
    EXPECT_TRUE(std::isfinite(tail.square_sum)) << target;
    EXPECT_EQ(tail_moments(values, std::numeric_limits<float>::max()).count, 0u) << target;
  });
}

TEST(CompactAbove, KeepsWhatPassesInOrder) {
  for (const size_t count : kCounts) {
    const auto values = normals(count, 3);
    std::vector<uint32_t> positions(count);
    std::iota(positions.begin(), positions.end(), 7u);
    for (const float threshold : {0.0f, 0.5f, 2.0f, 50.0f}) {
      std::vector<float> want;
      std::vector<uint32_t> want_positions;
      for (size_t i = 0; i < count; ++i) {
        if (!(std::abs(values[i]) > threshold)) continue;
        want.push_back(values[i]);
        want_positions.push_back(positions[i]);
      }
      for_each_target([&](std::string_view target) {
        SCOPED_TRACE(std::to_string(count) + std::string(" ").append(target));
        std::vector<float> kept(count);
        std::vector<uint32_t> kept_positions(count);
        size_t found = compact_above(values, positions, threshold, kept, kept_positions);
        kept.resize(found);
        kept_positions.resize(found);
        EXPECT_EQ(kept, want);
        EXPECT_EQ(kept_positions, want_positions);

        kept = values;
        kept_positions = positions;
        found = compact_above(kept, kept_positions, threshold, kept, kept_positions);
        kept.resize(found);
        kept_positions.resize(found);
        EXPECT_EQ(kept, want);
        EXPECT_EQ(kept_positions, want_positions);

        kept = values;
        found = compact_above(kept, {}, threshold, kept, {});
        kept.resize(found);
        EXPECT_EQ(kept, want);
      });
    }
  }
}

TEST(LogSum, IsTheSumOfLogarithms) {
  for (const size_t count : kCounts) {
    auto values = normals(count, 4);
    for (size_t i = 0; i < count; i += 5) values[i] = 0;
    for (const double guard : {2.2e-16, 1e-3}) {
      long double want = 0;
      for (const float value : values)
        want += std::log((std::abs(static_cast<long double>(value)) + guard) / 0.7L);
      double first = 0;
      for_each_target([&, begin = true](std::string_view target) mutable {
        const double got = log_sum(values, guard, 0.7);
        EXPECT_NEAR(got, want, 1e-15 * (std::abs(want) + 1)) << count << target;
        if (begin) first = got;
        begin = false;
        EXPECT_EQ(std::bit_cast<uint64_t>(got), std::bit_cast<uint64_t>(first)) << count << target;
      });
    }
  }
}

TEST(LogSum, IsTheSameBitsAtEveryPowerOfTwo) {
  auto values = normals(30001, 5);
  const double before = log_sum(values, 1e-12, 0.3);
  for (float& value : values) value *= 0x1p20f;
  EXPECT_EQ(log_sum(values, 1e-12 * 0x1p20, 0.3 * 0x1p20), before);
}

TEST(LogSum, SpansTheRangeOfFloats) {
  std::vector<float> values(16 * 1024, std::numeric_limits<float>::max());
  EXPECT_NEAR(log_sum(values, 1e22, 1e-40) / values.size(), std::log(3.4028234664e78), 1e-9);
  values.assign(values.size(), std::numeric_limits<float>::denorm_min());
  EXPECT_NEAR(log_sum(values, 1e-60, 1e38) / values.size(), std::log(0x1p-149 * 1e-38), 1e-9);
}

}  // namespace
}  // namespace thinwire::kernel
