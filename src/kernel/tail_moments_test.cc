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

float largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// The documented order, written plainly: sixteen lanes, in float for blocks of 512, in double for
// chunks of 8192, which are folded in halves; excesses in units of the largest value's power of
// two.
TailMoments oracle(std::span<const float> values, float threshold) {
  const float largest = largest_of(values);
  const int exponent = largest > 0 ? std::max(std::ilogb(largest), -126) : 0;
  TailMoments total{.smallest = kInfinity};
  for (size_t begin = 0; begin < values.size(); begin += 8192) {
    double sum[16] = {}, square_sum[16] = {};
    const size_t end = std::min(begin + 8192, values.size());
    for (size_t block = begin; block < end; block += 512) {
      float near_sum[16] = {}, near_square_sum[16] = {};
      for (size_t i = block; i < std::min(block + 512, end); ++i) {
        const float magnitude = std::abs(values[i]);
        if (!(magnitude > threshold)) continue;
        const float excess = (magnitude - threshold) * std::ldexp(1.0f, -exponent);
        const float square = excess * excess;
        near_sum[i % 16] += excess;
        near_square_sum[i % 16] += square;
        total.smallest = std::min(total.smallest, magnitude);
        ++total.count;
      }
      for (size_t i = 0; i < 16; ++i) {
        sum[i] += near_sum[i];
        square_sum[i] += near_square_sum[i];
      }
    }
    for (size_t half = 8; half > 0; half /= 2)
      for (size_t i = 0; i < half; ++i) {
        sum[i] += sum[i + half];
        square_sum[i] += square_sum[i + half];
      }
    total.sum += sum[0];
    total.square_sum += square_sum[0];
  }
  total.sum = std::ldexp(total.sum, exponent);
  total.square_sum = std::ldexp(total.square_sum, 2 * exponent);
  return total;
}

const size_t kCounts[] = {0, 1, 7, 15, 16, 17, 31, 8191, 8192, 8193, 16400, 100003};

TEST(TailMoments, AreTheOraclesBits) {
  for (const size_t count : kCounts) {
    const auto values = normals(count, 1);
    for (const float threshold : {0.0f, 0.3f, 1.0f, 3.0f, 100.0f}) {
      const TailMoments want = oracle(values, threshold);
      for_each_target([&](std::string_view target) {
        EXPECT_EQ(tail_moments(values, threshold, largest_of(values)), want)
            << count << " " << threshold << target;
      });
    }
  }
}

TEST(TailMoments, WithAListAreBothTheirResults) {
  for (const size_t count : kCounts) {
    const auto values = normals(count, 7);
    const float largest = largest_of(values);
    for (const float above : {0.0f, 0.8f, 1.7f, 2.5f, 9.0f})
      for (const size_t room : {size_t{0}, size_t{1}, size_t{70}, size_t{1000}, count + 64}) {
        std::vector<uint32_t> want_positions(room), positions(room);
        std::vector<float> want_kept(room), kept(room);
        const Selection want = select_above(values, 0, above, want_positions, want_kept);
        const TailMoments tail = oracle(values, 0.7f);
        for_each_target([&](std::string_view target) {
          SCOPED_TRACE(std::to_string(count) + " " + std::to_string(room) + std::string(target));
          Selection listed;
          EXPECT_EQ(tail_moments_and_list(values, 0.7f, largest, above, positions, kept, listed),
                    tail);
          EXPECT_EQ(listed.kept, want.kept);
          EXPECT_EQ(listed.next, want.next);
          for (size_t i = 0; i < want.kept; ++i) {
            ASSERT_EQ(positions[i], want_positions[i]);
            ASSERT_EQ(kept[i], want_kept[i]);
          }
        });
      }
  }
}

TEST(TailMoments, AreTheSumsOfExcesses) {
  const auto values = normals(100003, 2);
  for (const float threshold : {0.0f, 0.3f, 1.0f, 3.0f}) {
    long double sum = 0, square_sum = 0;
    for (const float value : values) {
      const long double excess = std::abs(value) - static_cast<long double>(threshold);
      if (excess > 0) sum += excess, square_sum += excess * excess;
    }
    const TailMoments tail = tail_moments(values, threshold, largest_of(values));
    EXPECT_NEAR(tail.sum / sum, 1, 1e-7);
    EXPECT_NEAR(tail.square_sum / square_sum, 1, 1e-7);
  }
}

TEST(TailMoments, CompareStrictlyAndFindTheExactMinimum) {
  std::vector<float> values(1000, 1.0f);
  values[500] = std::nextafter(1.0f, 2.0f);
  values[700] = -values[500];
  const float largest = values[500];
  for_each_target([&](std::string_view target) {
    const TailMoments tail = tail_moments(values, 1.0f, largest);
    EXPECT_EQ(tail.count, 2u) << target;
    EXPECT_EQ(tail.smallest, largest) << target;
    EXPECT_EQ(tail_moments(values, largest, largest).count, 0u) << target;
    EXPECT_EQ(tail_moments(values, largest, largest).smallest, kInfinity) << target;
    EXPECT_EQ(tail_moments({}, 0, 0).count, 0u) << target;
  });
}

TEST(TailMoments, HoldTheLargestAndSmallestFloats) {
  std::vector<float> values(40, std::numeric_limits<float>::max());
  values[3] = -std::numeric_limits<float>::denorm_min();
  const float largest = values[0], least = -values[3];
  const double square = static_cast<double>(largest) * largest;
  for_each_target([&](std::string_view target) {
    const TailMoments tail = tail_moments(values, 0.0f, largest);
    EXPECT_EQ(tail.count, 40u) << target;
    EXPECT_EQ(tail.smallest, least) << target;
    EXPECT_NEAR(tail.square_sum / square, 39, 1e-5) << target;
    EXPECT_EQ(tail_moments(values, largest, largest).count, 0u) << target;
    const std::vector<float> smallest(100, 8 * least);
    EXPECT_EQ(tail_moments(smallest, 0.0f, 8 * least).sum, 800.0 * least) << target;
    EXPECT_EQ(tail_moments(smallest, 7 * least, 8 * least).sum, 100.0 * least) << target;
  });
}

TEST(TailMoments, ScaleExactlyByPowersOfTwo) {
  auto values = normals(50000, 6);
  for (float& value : values) value = value * value * value;
  const float largest = largest_of(values);
  const TailMoments before = tail_moments(values, 0.5f, largest);
  for (const int exponent : {-100, -3, 80}) {
    auto scaled = values;
    for (float& value : scaled) value = std::ldexp(value, exponent);
    const TailMoments after =
        tail_moments(scaled, std::ldexp(0.5f, exponent), std::ldexp(largest, exponent));
    EXPECT_EQ(after.count, before.count);
    EXPECT_EQ(after.sum, std::ldexp(before.sum, exponent));
    EXPECT_EQ(after.square_sum, std::ldexp(before.square_sum, 2 * exponent));
    EXPECT_EQ(after.smallest, std::ldexp(before.smallest, exponent));
  }
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
    for (const double guard : {0x1p-52, 1e-3}) {
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
