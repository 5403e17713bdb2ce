// Formats of kept values: documented bytes, plain oracles, borders of the float format, bad bytes.
// SPDX-License-Identifier: Apache-2.0
#include "codec/kept_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/random.h"

namespace thinwire {
namespace {

using ::testing::ElementsAre;
using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

constexpr ValueFormat kFormats[] = {ValueFormat::kFp32, ValueFormat::kFp16, ValueFormat::kBf16,
                                    ValueFormat::kInt8, ValueFormat::kInt2, ValueFormat::kSign,
                                    ValueFormat::kMean};
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kLeast = std::numeric_limits<float>::denorm_min();

Bytes write(ValueFormat format, const Floats& values, std::span<float> left = {}) {
  Bytes bytes(value_bytes(format, values.size()));
  const float mean = sent_mean(format, values.size(), [&](size_t i) { return values[i]; });
  ValueWriter writer(format, mean, bytes);
  for (size_t begin = 0; begin < values.size(); begin += kValueBlock) {
    const size_t count = std::min(kValueBlock, values.size() - begin);
    writer.write(std::span(values).subspan(begin, count),
                 left.empty() ? left : left.subspan(begin, count));
  }
  return bytes;
}

// Whether the bytes are good, and what they say.
bool read(ValueFormat format, const Bytes& bytes, std::span<float> out) {
  ValueReader reader(format, bytes);
  for (size_t begin = 0; begin < out.size(); begin += kValueBlock)
    reader.read(out.subspan(begin, std::min(kValueBlock, out.size() - begin)));
  return reader.good();
}

Floats round_trip(ValueFormat format, const Floats& values) {
  Floats left(values.size()), decoded(values.size());
  const Bytes bytes = write(format, values, left);
  EXPECT_EQ(write(format, values), bytes);
  EXPECT_TRUE(read(format, bytes, decoded));
  Floats same = values;
  EXPECT_EQ(write(format, values, same), bytes);
  EXPECT_EQ(same, left);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(left[i], values[i] - decoded[i]) << i;
  return decoded;
}

Floats normals(size_t count, float scale) {
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values[i] = scale * random_normal({.seed = 11}, i);
  return values;
}

std::vector<int> as_ints(const Bytes& bytes) {
  std::vector<int> ints;
  for (const std::byte byte : bytes) ints.push_back(std::to_integer<int>(byte));
  return ints;
}

TEST(KeptValues, HaveTheDocumentedBytes) {
  const Floats values = {127.0f, -254.0f, 3.0f};  // scale 2
  EXPECT_THAT(as_ints(write(ValueFormat::kInt8, values)),
              ElementsAre(0, 0, 0, 0x40, 64, 0x81, 2));    // 63.5 and 1.5 to even
  EXPECT_THAT(as_ints(write(ValueFormat::kInt2, values)),  // 65 and 254, split at 128
              ElementsAre(0, 0, 0x82, 0x42, 0, 0, 0x7e, 0x43, 0x0c));
  EXPECT_THAT(as_ints(write(ValueFormat::kSign, values)), ElementsAre(0, 0, 0, 0x43, 2));  // 128
  EXPECT_THAT(as_ints(write(ValueFormat::kMean, {1.0f, 3.0f})), ElementsAre(0, 0, 0, 0x40));
  for (const ValueFormat format : kFormats) EXPECT_TRUE(write(format, {}).empty());
}

TEST(KeptValues, Int8IsTheNearestLevelOfItsBlock) {
  for (const size_t count : {1, 511, 512, 513, 3000}) {
    const Floats values = normals(count, 1);
    const Floats decoded = round_trip(ValueFormat::kInt8, values);
    for (size_t begin = 0; begin < count; begin += 512) {
      const size_t end = std::min(begin + 512, count);
      float largest = 0;
      for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
      const float scale = largest / 127;
      for (size_t i = begin; i < end; ++i)
        ASSERT_EQ(decoded[i], std::nearbyint(values[i] / scale) * scale);
    }
  }
}

TEST(KeptValues, SignsCarryTheMeanMagnitude) {
  for (const size_t count : {1, 7, 8, 9, 512, 520, 3000}) {
    const Floats values = normals(count, 3);
    double sum = 0;
    for (const float value : values) sum += std::abs(value);
    const auto mean = static_cast<float>(sum / static_cast<double>(count));
    const Floats decoded = round_trip(ValueFormat::kSign, values);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(decoded[i], std::copysign(mean, values[i]));
  }
  EXPECT_THAT(round_trip(ValueFormat::kMean, {-1.0f, -2.0f, -6.0f}), ElementsAre(-3, -3, -3));
}

TEST(KeptValues, Int2IsTheMeanOfTheMagnitudesOnItsSideOfTheMeanOfItsBlock) {
  for (const size_t count : {1, 3, 4, 5, 511, 512, 513, 3000}) {
    const Floats values = normals(count, 2);
    const Floats decoded = round_trip(ValueFormat::kInt2, values);
    for (size_t begin = 0; begin < count; begin += 512) {
      const size_t end = std::min(begin + 512, count);
      double all = 0, sums[2] = {}, counts[2] = {};
      for (size_t i = begin; i < end; ++i) all += std::abs(values[i]);
      const auto split = static_cast<float>(all / static_cast<double>(end - begin));
      for (size_t i = begin; i < end; ++i) {
        sums[std::abs(values[i]) > split] += std::abs(values[i]);
        ++counts[std::abs(values[i]) > split];
      }
      for (size_t i = begin; i < end; ++i) {
        const bool large = std::abs(values[i]) > split;
        const auto magnitude = static_cast<float>(sums[large] / counts[large]);
        ASSERT_EQ(decoded[i], std::copysign(magnitude, values[i])) << i;
      }
    }
  }
  EXPECT_THAT(round_trip(ValueFormat::kInt2, {2.0f, -2.0f, 2.0f}), ElementsAre(2, -2, 2));
}

// What is left never has more energy than what there was, so that feedback converges.
TEST(KeptValues, LeaveLessThanThereWas) {
  for (const ValueFormat format : kFormats) {
    const Floats values = normals(2000, 1);
    const Floats decoded = round_trip(format, values);
    double before = 0, after = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      before += double{values[i]} * values[i];
      after += std::pow(double{values[i]} - decoded[i], 2);
    }
    EXPECT_LT(after, before * (format == ValueFormat::kSign   ? 0.4  // 1 - 2/pi
                               : format == ValueFormat::kInt2 ? 0.15
                               : format == ValueFormat::kMean ? 1.0
                                                              : 1e-4));
  }
}

TEST(KeptValues, TakeTheBordersOfTheFloatFormat) {
  for (const ValueFormat format : kFormats) {
    if (format == ValueFormat::kMean) continue;  // of one sign only
    for (const Floats& values :
         {Floats{kMax, -kMax, 1.0f}, Floats{kMax, kMax, kMax}, Floats{kLeast, -kLeast},
          Floats{63 * kLeast, kLeast}, Floats{64 * kLeast, 20 * kLeast}, Floats{190 * kLeast, 0},
          Floats{0.0f, -0.0f}, Floats{kMax, kLeast}})
      round_trip(format, values);
  }
  EXPECT_EQ(round_trip(ValueFormat::kInt8, {63 * kLeast, 0})[0], 0);  // no scale is so small
  EXPECT_EQ(round_trip(ValueFormat::kInt8, {190 * kLeast, 0})[0], 127 * kLeast);
  EXPECT_GT(round_trip(ValueFormat::kInt8, {kMax, 0})[0], 0.99999f * kMax);
  EXPECT_EQ(round_trip(ValueFormat::kSign, {kMax, -kMax})[1], -kMax);
  EXPECT_EQ(round_trip(ValueFormat::kMean, {kMax, kMax})[1], kMax);
}

TEST(KeptValues, RefuseWhatBreaksARule) {
  Floats out(3);
  const auto good = [&](ValueFormat format, float first, std::initializer_list<int> then) {
    Bytes bytes(4);
    std::memcpy(bytes.data(), &first, 4);
    for (const int byte : then) bytes.push_back(static_cast<std::byte>(byte));
    return read(format, bytes, out);
  };
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(good(ValueFormat::kInt8, 0.5f, {1, 0x81, 0}));
  EXPECT_THAT(out, ElementsAre(0.5f, -63.5f, 0));
  EXPECT_FALSE(good(ValueFormat::kInt8, 0.5f, {1, 0x80, 0}));  // -128
  EXPECT_FALSE(good(ValueFormat::kInt8, -0.5f, {1, 2, 0}));
  EXPECT_FALSE(good(ValueFormat::kInt8, -0.0f, {1, 2, 0}));
  EXPECT_FALSE(good(ValueFormat::kInt8, kMax / 126, {1, 2, 0}));
  // 0.5 and 2; high, negative, negative and high.
  EXPECT_TRUE(good(ValueFormat::kInt2, 0.5f, {0, 0, 0, 0x40, 0x39}));
  EXPECT_THAT(out, ElementsAre(2, -0.5f, -2));
  EXPECT_FALSE(good(ValueFormat::kInt2, 0.5f, {0, 0, 0, 0x40, 0x79}));  // a fourth code
  EXPECT_FALSE(good(ValueFormat::kInt2, 2.5f, {0, 0, 0, 0x40, 0x39}));  // low above high
  EXPECT_FALSE(good(ValueFormat::kInt2, -0.5f, {0, 0, 0, 0x40, 0x39}));
  EXPECT_FALSE(good(ValueFormat::kInt2, -0.0f, {0, 0, 0, 0x40, 0x39}));
  EXPECT_FALSE(good(ValueFormat::kInt2, 0.5f, {0, 0, 0x80, 0x7f, 0x39}));  // an infinity
  EXPECT_TRUE(good(ValueFormat::kSign, 0.5f, {5}));
  EXPECT_THAT(out, ElementsAre(-0.5f, 0.5f, -0.5f));
  EXPECT_FALSE(good(ValueFormat::kSign, 0.5f, {8}));  // a fourth sign
  EXPECT_FALSE(good(ValueFormat::kSign, -0.5f, {5}));
  EXPECT_TRUE(good(ValueFormat::kMean, -0.5f, {}));
  EXPECT_THAT(out, ElementsAre(-0.5f, -0.5f, -0.5f));
  for (const float bad : {inf, -inf, nan}) {
    EXPECT_FALSE(good(ValueFormat::kInt8, bad, {0, 0, 0}));
    EXPECT_FALSE(good(ValueFormat::kInt2, bad, {0, 0, 0, 0x40, 0}));
    EXPECT_FALSE(good(ValueFormat::kSign, bad, {0}));
    EXPECT_FALSE(good(ValueFormat::kMean, bad, {}));
  }
}

}  // namespace
}  // namespace thinwire
