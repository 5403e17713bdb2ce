// Bits and levels against plain loops on every target; reading bytes that may be anything.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/two_levels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/random.h"
#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

using Bytes = std::vector<std::byte>;

constexpr float kMax = std::numeric_limits<float>::max();

enum class Data { kNormal, kPositive, kNegative, kZeros, kTiny, kHuge };
constexpr Data kAll[] = {Data::kNormal, Data::kPositive, Data::kNegative,
                         Data::kZeros,  Data::kTiny,     Data::kHuge};

std::vector<float> make(Data data, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const float z = random_normal({.seed = 5}, i);
    switch (data) {
      case Data::kNormal:
        values[i] = i % 11 == 7 ? (i % 2 ? 0.0f : -0.0f) : z;
        break;
      case Data::kPositive:
        values[i] = std::abs(z);
        break;
      case Data::kNegative:
        values[i] = -1 - std::abs(z);
        break;
      case Data::kZeros:
        values[i] = i % 3 ? 0.0f : -0.0f;
        break;
      case Data::kTiny:
        values[i] = z * 1e-44f;
        break;
      case Data::kHuge:
        values[i] = std::copysign(kMax, z);
        break;
    }
  }
  return values;
}

// Means in long double: within one rounding of what any order of additions in double gives.
Levels oracle_levels(std::span<const float> x, LevelRule rule) {
  long double above = 0, below = 0;
  size_t negatives = 0;
  for (const float value : x) {
    (value < 0 ? below : above) += value;
    negatives += value < 0;
  }
  const auto mean = [](long double sum, size_t count) {
    return count == 0 ? 0.0f : static_cast<float>(sum / static_cast<long double>(count));
  };
  if (rule == LevelRule::kMeans) return {mean(above, x.size() - negatives), mean(below, negatives)};
  return {mean(above - below, x.size()), mean(below - above, x.size())};
}

class TwoLevels : public testing::TestWithParam<LevelRule> {
 protected:
  LevelBlocks blocks(size_t block = 64) const { return {.block = block, .rule = GetParam()}; }

  // Levels of the block that holds value i.
  Levels levels_at(const Bytes& bytes, size_t i) const {
    const std::byte* at = &bytes[i / 64 * blocks().size(64)];
    Levels levels;
    std::memcpy(&levels.high, at, sizeof(float));
    std::memcpy(&levels.low, at + blocks().header() - sizeof(float), sizeof(float));
    if (GetParam() == LevelRule::kMagnitude) levels.low = -levels.high;
    return levels;
  }
};

TEST_P(TwoLevels, BitsLevelsAndRestAreTheOracles) {
  Bytes first_target;
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    Bytes all;
    for (const Data data : kAll)
      for (size_t count = 0; count < 300; count += count < 140 ? 1 : 23) {
        SCOPED_TRACE(std::to_string(static_cast<int>(data)) + ", " + std::to_string(count));
        const auto values = make(data, count);
        Bytes bytes(blocks().size(count));
        encode_levels(values, blocks(), bytes);
        all.insert(all.end(), bytes.begin(), bytes.end());
        auto rest = values;
        Bytes again(bytes.size());
        encode_levels(rest, blocks(), again, rest);
        ASSERT_EQ(again, bytes);
        std::vector<float> out(count, 3.0f);
        ASSERT_TRUE(add_levels(bytes, blocks(), 0.5f, out));
        for (size_t i = 0; i < count; ++i) {
          const size_t begin = i / 64 * 64, end = std::min(begin + 64, count);
          const Levels levels = levels_at(bytes, i);
          if (i == begin) {
            const auto expected =
                oracle_levels(std::span(values).subspan(begin, end - begin), GetParam());
            ASSERT_FLOAT_EQ(levels.high, expected.high);
            ASSERT_FLOAT_EQ(levels.low, expected.low);
          }
          const size_t at = i / 64 * blocks().size(64) + blocks().header() + i % 64 / 8;
          const bool bit = std::to_integer<int>(bytes[at]) >> i % 8 & 1;
          ASSERT_EQ(bit, values[i] < 0);
          const float level = bit ? levels.low : levels.high;
          ASSERT_EQ(rest[i], values[i] - level);
          ASSERT_EQ(out[i], 3.0f + 0.5f * level);
        }
        if (count % 8 != 0) {
          EXPECT_EQ(std::to_integer<int>(bytes.back()) >> count % 8, 0) << "unused bits";
        }
      }
    if (first_target.empty()) first_target = all;
    EXPECT_EQ(all, first_target);
  });
}

TEST_P(TwoLevels, OneBlockOfAnyLength) {
  const auto values = make(Data::kNormal, 100003);
  const Levels expected = oracle_levels(values, GetParam());
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    Bytes whole(blocks(values.size()).size(values.size()));
    encode_levels(values, blocks(values.size()), whole);
    Levels levels;
    std::memcpy(&levels.high, whole.data(), sizeof(float));
    levels.low = -levels.high;
    if (GetParam() == LevelRule::kMeans)
      std::memcpy(&levels.low, whole.data() + sizeof(float), sizeof(float));
    EXPECT_FLOAT_EQ(levels.high, expected.high);
    EXPECT_FLOAT_EQ(levels.low, expected.low);
    Bytes bits(code_bytes(values.size(), 1));
    std::vector<float> rest(values.size());
    pack_levels(values, levels, bits, rest);
    EXPECT_EQ(Bytes(whole.begin() + static_cast<long>(blocks().header()), whole.end()), bits);
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(rest[i], values[i] - (values[i] < 0 ? levels.low : levels.high));
  });
}

TEST_P(TwoLevels, RefusesLevelsOutOfRange) {
  const auto values = make(Data::kNormal, 150);
  Bytes bytes(blocks().size(150));
  encode_levels(values, blocks(), bytes);
  const auto accepts = [&](size_t offset, float level) {
    Bytes changed = bytes;
    std::memcpy(&changed[offset], &level, sizeof level);
    std::vector<float> out(150);
    return add_levels(changed, blocks(), 1.0f, out);
  };
  for (size_t block = 0; block < 3; ++block) {
    const size_t high = block * blocks().size(64), low = high + sizeof(float);
    for (const float good : {0.0f, 1.0f, kMax}) EXPECT_TRUE(accepts(high, good));
    for (const float bad : {-0.0f, -1.0f, INFINITY, NAN}) EXPECT_FALSE(accepts(high, bad));
    if (GetParam() == LevelRule::kMagnitude) continue;
    for (const float good : {0.0f, -0.0f, -1.0f, -kMax}) EXPECT_TRUE(accepts(low, good));
    for (const float bad : {1.0f, -INFINITY, NAN}) EXPECT_FALSE(accepts(low, bad));
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, TwoLevels,
                         testing::Values(LevelRule::kMagnitude, LevelRule::kMeans),
                         [](const auto& param) { return param.index == 0 ? "sign" : "means"; });

}  // namespace
}  // namespace thinwire::kernel
