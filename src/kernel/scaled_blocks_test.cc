// Quantising against a plain loop, byte for byte on every target; reading blocks that may be
// anything.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/scaled_blocks.h"

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

struct Oracle {
  Bytes bytes;
  std::vector<float> decoded;
};

// As scaled_blocks.h writes it down, with no regard to speed.
Oracle oracle_quantise(const std::vector<float>& x, ScaledBlocks blocks) {
  Oracle oracle;
  const int m = (1 << (blocks.bits - 1)) - 1;
  for (size_t begin = 0; begin < x.size(); begin += blocks.block) {
    const size_t end = std::min(begin + blocks.block, x.size());
    float max = 0;
    for (size_t i = begin; i < end; ++i) max = std::max(max, std::abs(x[i]));
    float scale = max / static_cast<float>(m);
    if (scale < 0x1p-126f) scale = 0;
    if (std::isinf(scale * static_cast<float>(m))) scale = std::nextafter(scale, 0.0f);
    const float inverse = scale > 0 ? 1 / scale : 0;
    std::vector<uint8_t> codes;
    for (size_t i = begin; i < end; ++i) {
      const auto code = static_cast<int>(std::nearbyint(x[i] * inverse));
      codes.push_back(static_cast<uint8_t>(code & ((1 << blocks.bits) - 1)));
      oracle.decoded.push_back(static_cast<float>(code) * scale);
    }
    Bytes block(sizeof scale + code_bytes(codes.size(), blocks.bits));
    std::memcpy(block.data(), &scale, sizeof scale);
    for (size_t i = 0; i < codes.size() * blocks.bits; ++i)
      if (codes[i / blocks.bits] >> i % blocks.bits & 1)
        block[sizeof scale + i / 8] |= std::byte(1 << i % 8);
    oracle.bytes.insert(oracle.bytes.end(), block.begin(), block.end());
  }
  return oracle;
}

enum class Data { kNormal, kTies, kZero, kTiny, kLeast, kHuge, kSpike };
constexpr Data kAll[] = {Data::kNormal, Data::kTies, Data::kZero, Data::kTiny,
                         Data::kLeast,  Data::kHuge, Data::kSpike};

std::vector<float> make(Data data, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const float z = random_normal({.seed = 5}, i);
    const float normal = std::numeric_limits<float>::min();
    switch (data) {
      case Data::kNormal:
        values[i] = z;
        break;
      case Data::kTies:  // with a scale of 1, half-way between two codes
        values[i] = i % 8 == 0 ? 127.0f : std::round(z * 3) + 0.5f;
        break;
      case Data::kZero:
        values[i] = i % 2 ? 0.0f : -0.0f;
        break;
      case Data::kTiny:
        values[i] = z * 1e-40f;
        break;
      case Data::kLeast:  // scales just below and above the smallest normal number
        values[i] = std::copysign(normal * (i / 64 % 2 ? 127.0f : 126.9f), z);
        break;
      case Data::kHuge:
        values[i] = i % 3 == 0 ? std::copysign(kMax, z) : z * 1e37f;
        break;
      case Data::kSpike:
        values[i] = i % 97 == 3 ? 1000.0f : 0.0f;
        break;
    }
  }
  return values;
}

class Blocks : public testing::TestWithParam<size_t> {};

TEST_P(Blocks, QuantisesAndDecodesAsTheOracle) {
  const ScaledBlocks blocks{.block = 64, .bits = GetParam()};
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    for (const Data data : kAll)
      for (size_t count = 0; count < 300; count += count < 140 ? 1 : 23) {
        SCOPED_TRACE(std::to_string(static_cast<int>(data)) + ", " + std::to_string(count));
        const auto values = make(data, count);
        const Oracle oracle = oracle_quantise(values, blocks);
        ASSERT_EQ(blocks.size(count), oracle.bytes.size());

        Bytes guarded(oracle.bytes.size() + 2, std::byte{0xEE});
        const auto bytes = std::span(guarded).subspan(1, oracle.bytes.size());
        auto rest = values;  // in place
        quantise_blocks(values, blocks, bytes);
        ASSERT_EQ(Bytes(bytes.begin(), bytes.end()), oracle.bytes);
        quantise_blocks(rest, blocks, bytes, rest);
        ASSERT_EQ(Bytes(bytes.begin(), bytes.end()), oracle.bytes);
        EXPECT_EQ(guarded.front(), std::byte{0xEE});
        EXPECT_EQ(guarded.back(), std::byte{0xEE});

        std::vector<float> out(count, 0.0f);
        ASSERT_TRUE(add_blocks(Bytes(oracle.bytes), blocks, 1.0f, out));
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(out[i], oracle.decoded[i]) << i;
          ASSERT_EQ(rest[i], values[i] - oracle.decoded[i]) << i;
        }
      }
  });
}

TEST_P(Blocks, AddsCodesTimesAScaleWeightedBefore) {
  const ScaledBlocks blocks{.block = 64, .bits = GetParam()};
  const auto values = make(Data::kNormal, 101);
  const Oracle oracle = oracle_quantise(values, blocks);
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    std::vector<float> out(values.size(), 2.0f);
    ASSERT_TRUE(add_blocks(oracle.bytes, blocks, 0.3f, out));
    for (size_t i = 0; i < out.size(); ++i) {
      float scale;
      std::memcpy(&scale, &oracle.bytes[i / 64 * blocks.size(64)], sizeof scale);
      const float code = std::nearbyint(oracle.decoded[i] / scale);
      EXPECT_EQ(out[i], 2.0f + code * (0.3f * scale));
    }
  });
}

TEST_P(Blocks, ErrorsStayWithinHalfAScale) {
  const ScaledBlocks blocks{.block = 64, .bits = GetParam()};
  const double m = (1 << (blocks.bits - 1)) - 1;
  for (const Data data : kAll) {
    auto rest = make(data, 6400);
    const auto values = rest;
    Bytes bytes(blocks.size(rest.size()));
    quantise_blocks(rest, blocks, bytes, rest);
    for (size_t i = 0; i < rest.size(); ++i) {
      float scale;
      std::memcpy(&scale, &bytes[i / 64 * blocks.size(64)], sizeof scale);
      if (scale == 0)
        EXPECT_EQ(rest[i], values[i]);
      else
        EXPECT_LE(std::abs(rest[i]), (0.5 + m * 0x1p-22) * scale) << values[i];
    }
  }
}

TEST_P(Blocks, RefusesScalesAndCodesOutOfRange) {
  const ScaledBlocks blocks{.block = 64, .bits = GetParam()};
  const float m = static_cast<float>((1 << (blocks.bits - 1)) - 1);
  const Oracle oracle = oracle_quantise(make(Data::kNormal, 150), blocks);
  const auto with_scale = [&](size_t block, float scale) {
    Bytes bytes = oracle.bytes;
    std::memcpy(&bytes[block * blocks.size(64)], &scale, sizeof scale);
    std::vector<float> out(150);
    return add_blocks(bytes, blocks, 1.0f, out);
  };
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    for (size_t block = 0; block < 3; ++block) {
      EXPECT_TRUE(with_scale(block, 0.0f));
      EXPECT_TRUE(with_scale(block, std::nextafter(kMax / m, 0.0f)));
      EXPECT_FALSE(with_scale(block, kMax / m * 1.0001f));
      for (const float bad : {-0.0f, -1.0f, INFINITY, -INFINITY, NAN, -NAN})
        EXPECT_FALSE(with_scale(block, bad));
    }
    for (size_t at = 0; at < 150; ++at) {
      Bytes bytes = oracle.bytes;
      const size_t first = at / 64 * blocks.size(64) + sizeof(float);
      for (size_t b = 0; b < blocks.bits; ++b) {  // -m - 1: the top bit alone
        const size_t bit = at % 64 * blocks.bits + b;
        auto& byte = bytes[first + bit / 8];
        byte &= ~std::byte(1 << bit % 8);
        if (b + 1 == blocks.bits) byte |= std::byte(1 << bit % 8);
      }
      std::vector<float> out(150);
      EXPECT_FALSE(add_blocks(bytes, blocks, 1.0f, out)) << at;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Bits, Blocks, testing::Range<size_t>(2, 9));

}  // namespace
}  // namespace thinwire::kernel
