// Grids against plain loops, byte for byte on every target; reading blocks that may be anything.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/grid_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernel/for_each_target.h"
#include "kernel/half_float.h"
#include "kernel/random_bits.h"
#include "kernel/scaled_blocks.h"

namespace thinwire::kernel {
namespace {

using Bytes = std::vector<std::byte>;

constexpr float kMax = std::numeric_limits<float>::max();

enum class Data { kNormal, kConstant, kZero, kTiny, kHuge, kSpike };
constexpr Data kAll[] = {Data::kNormal, Data::kConstant, Data::kZero,
                         Data::kTiny,   Data::kHuge,     Data::kSpike};

std::vector<float> make(Data data, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const float z = random_normal({.seed = 5}, i);
    switch (data) {
      case Data::kNormal:
        values[i] = 3 + z;
        break;
      case Data::kConstant:
        values[i] = -0.7f;
        break;
      case Data::kZero:
        values[i] = i % 2 ? 0.0f : -0.0f;
        break;
      case Data::kTiny:
        values[i] = z * 1e-38f;
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

GridBlocks blocks_of(GridRule rule, size_t bits) {
  const auto most = static_cast<float>((1 << (bits - 1)) - 1);
  return {.block = 64,
          .bits = bits,
          .rule = rule,
          .levels = rule == GridRule::kClip ? 1 : std::max(most - 1, 1.0f),
          .clip = 1.5f};
}

// What stands before the codes of a block, as a decoder sees it.
struct Header {
  float mid = 0, step = 0;
};

Header read_header(const GridBlocks& blocks, const std::byte* at) {
  Header header;
  if (blocks.rule == GridRule::kHalf) {
    from_half({at, 2}, std::span(&header.step, 1));
    header.step /= static_cast<float>(1 << (blocks.bits - 1));
  } else {
    if (blocks.rule == GridRule::kMinMax) {
      std::memcpy(&header.mid, at, sizeof(float));
      at += sizeof(float);
    }
    std::memcpy(&header.step, at, sizeof(float));
  }
  return header;
}

// Checks the header of a block against its definition in double.
void expect_header(const GridBlocks& blocks, std::span<const float> x, const Header& header) {
  double lo = x[0], hi = x[0], max = 0, sum = 0, squares = 0;
  for (const float value : x) {
    lo = std::min<double>(lo, value);
    hi = std::max<double>(hi, value);
    max = std::max<double>(max, std::abs(value));
    sum += value;
    squares += double{value} * value;
  }
  const double n = static_cast<double>(x.size()), mean = sum / n;
  const double codes = 1 << (blocks.bits - 1);
  double step = max / blocks.levels;
  if (blocks.rule == GridRule::kMinMax) {
    EXPECT_NEAR(header.mid, lo / 2 + hi / 2, 1e-7 * std::max(max, 1e-37));
    step = (hi - lo) / (2 * codes - 1);
  } else if (blocks.rule == GridRule::kHalf) {
    step = std::min(max, 65504.0) / codes;
    EXPECT_NEAR(header.step, step, std::max(step / 2000, 0x1p-24 / codes));
    return;
  } else if (blocks.rule == GridRule::kNorm) {
    step = std::sqrt(squares) / blocks.levels;
  } else if (blocks.rule == GridRule::kClip) {
    const double limit = 1.5 * std::sqrt(std::max(squares / n - mean * mean, 0.0));
    step = limit > 1e-6 * max ? std::min(limit, max) : max;
  }
  if (step < 0x1p-126)
    EXPECT_EQ(header.step, 0);
  else
    EXPECT_NEAR(header.step, std::min(step, double{kMax} / std::max(codes - 1, 1.0)), 1e-6 * step);
}

float half_of(float value) {
  uint16_t half;
  to_half(std::span<const float>(&value, 1), std::span(&half, 1));
  from_half(std::span<const uint16_t>(&half, 1), std::span(&value, 1));
  return value;
}

// Code and value of x under the header, by the words of grid_blocks.h.
struct Coded {
  int code;
  float value;
};

Coded oracle_code(const GridBlocks& blocks, const Header& header, float x, const uint16_t* half) {
  const auto codes = static_cast<float>(1 << (blocks.bits - 1));
  float least = -codes, most = codes - 1, inverse = header.step == 0 ? 0 : 1 / header.step;
  // The sum is exact in float below 2^-8; from there up what is added is less than half an ulp of
  // binary16.
  if (blocks.rule == GridRule::kHalf)
    inverse = codes / half_of(header.step * codes + half_of(1e-6f));
  if (blocks.rule != GridRule::kHalf && blocks.rule != GridRule::kMinMax) {
    most = blocks.levels;
    least = -most;
  }
  const bool shifted = blocks.rule == GridRule::kMinMax;
  float t = shifted ? x - header.mid : x;
  t *= inverse;
  if (shifted) t -= 0.5f;
  t = std::clamp(t, least, most);
  Coded coded;
  if (half != nullptr) {
    const double fixed = std::nearbyint(double{t} * 32768);
    coded.code = static_cast<int>(std::floor((fixed + *half / 2) / 32768));
  } else {
    coded.code = static_cast<int>(std::nearbyint(t));
  }
  const auto c = static_cast<float>(coded.code);
  coded.value = shifted ? header.mid + (c + 0.5f) * header.step : c * header.step;
  return coded;
}

struct Case {
  GridRule rule;
  size_t bits;
};

class Grids : public testing::TestWithParam<Case> {};

TEST_P(Grids, AreThoseOfTheOracle) {
  const GridBlocks blocks = blocks_of(GetParam().rule, GetParam().bits);
  const bool own_reader = blocks.rule == GridRule::kMinMax || blocks.rule == GridRule::kHalf;
  const Dither dither{.key = {.seed = 9, .use = RandomUse::kCodec}, .position = 12};
  for (const Dither* draws : {static_cast<const Dither*>(nullptr), &dither}) {
    Bytes first_target;
    for_each_target([&](std::string_view target) {
      SCOPED_TRACE(target);
      Bytes all;
      for (const Data data : kAll)
        for (const size_t count : {0, 1, 7, 8, 31, 32, 33, 63, 64, 65, 130, 200}) {
          SCOPED_TRACE(std::to_string(static_cast<int>(data)) + ", " + std::to_string(count));
          const auto values = make(data, count);
          Bytes bytes(blocks.size(count));
          auto rest = values;
          quantise_grid(rest, blocks, draws, bytes, rest);
          all.insert(all.end(), bytes.begin(), bytes.end());
          Bytes again(bytes.size());
          quantise_grid(values, blocks, draws, again);
          ASSERT_EQ(again, bytes);
          std::vector<float> out(count, 0.0f);
          ASSERT_TRUE(own_reader ? add_grid(bytes, blocks, 1, out)
                                 : add_blocks(bytes, {64, blocks.bits}, 1, out));
          for (size_t begin = 0; begin < count; begin += 64) {
            const size_t n = std::min<size_t>(64, count - begin);
            const std::byte* at = &bytes[begin / 64 * blocks.size(64)];
            const Header header = read_header(blocks, at);
            expect_header(blocks, std::span(values).subspan(begin, n), header);
            std::vector<uint8_t> codes(n);
            unpack_codes({at + blocks.header(), code_bytes(n, blocks.bits)}, blocks.bits, codes);
            for (size_t i = begin; i < begin + n; ++i) {
              const uint16_t half = random_half(dither.key, dither.position + i);
              const Coded coded =
                  oracle_code(blocks, header, values[i], draws != nullptr ? &half : nullptr);
              ASSERT_EQ(codes[i - begin], coded.code & ((1 << blocks.bits) - 1)) << i;
              ASSERT_EQ(out[i], coded.value) << i;
              ASSERT_EQ(rest[i], values[i] - coded.value) << i;
            }
          }
        }
      if (first_target.empty()) first_target = all;
      EXPECT_EQ(all, first_target);
    });
  }
}

TEST_P(Grids, RefuseStepsOutOfRange) {
  const GridBlocks blocks = blocks_of(GetParam().rule, GetParam().bits);
  if (blocks.rule != GridRule::kMinMax && blocks.rule != GridRule::kHalf) return;
  Bytes good(blocks.size(150));
  quantise_grid(make(Data::kNormal, 150), blocks, nullptr, good);
  std::vector<float> out(150);
  const auto accepts = [&](size_t at, const void* field, size_t size) {
    Bytes bytes = good;
    std::memcpy(&bytes[at], field, size);
    return add_grid(bytes, blocks, 1, out);
  };
  for (size_t block = 0; block < 3; ++block) {
    const size_t at = block * blocks.size(64);
    if (blocks.rule == GridRule::kHalf) {
      for (const uint16_t fine : {0x0000, 0x7BFF, 0x0001}) EXPECT_TRUE(accepts(at, &fine, 2));
      for (const uint16_t bad : {0x8000, 0xBC00, 0x7C00, 0xFC00, 0x7E00})
        EXPECT_FALSE(accepts(at, &bad, 2));
      continue;
    }
    for (const float mid : {0.0f, -0.0f, -1e30f, kMax / 2}) EXPECT_TRUE(accepts(at, &mid, 4));
    for (const float mid : {INFINITY, -INFINITY, NAN}) EXPECT_FALSE(accepts(at, &mid, 4));
    for (const float step : {0.0f, 1.0f, 1e36f}) EXPECT_TRUE(accepts(at + 4, &step, 4));
    for (const float step : {-0.0f, -1.0f, INFINITY, NAN, -NAN})
      EXPECT_FALSE(accepts(at + 4, &step, 4));
  }
}

TEST_P(Grids, GivenScalesStandInForThoseOfTheValues) {
  const GridBlocks blocks = blocks_of(GetParam().rule, GetParam().bits);
  if (blocks.rule == GridRule::kMinMax || blocks.rule == GridRule::kHalf) return;
  for (const Data data : {Data::kNormal, Data::kTiny, Data::kHuge, Data::kSpike}) {
    const auto values = make(data, 150);
    Bytes own(blocks.size(150)), given(blocks.size(150));
    std::vector<float> scales(blocks.count(150));
    ASSERT_EQ(scales.size(), 3u);
    quantise_grid(values, blocks, nullptr, own);
    grid_scales(values, blocks, scales);
    quantise_grid(values, blocks, nullptr, given, {}, scales);
    EXPECT_EQ(given, own);
    scales[1] = 2;
    quantise_grid(values, blocks, nullptr, given, {}, scales);
    const size_t size = blocks.size(64);
    EXPECT_EQ(read_header(blocks, &given[size]).step, 2);
    EXPECT_EQ(std::memcmp(&given[2 * size], &own[2 * size], blocks.size(22)), 0);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (size_t bits = 1; bits <= 8; ++bits) {
    all.push_back({GridRule::kMinMax, bits});
    if (bits == 1) continue;
    for (const GridRule rule : {GridRule::kHalf, GridRule::kMax, GridRule::kNorm, GridRule::kClip})
      all.push_back({rule, bits});
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<Case>& test) {
  const char* const names[] = {"min_max", "half", "max", "norm", "clip"};
  return std::string(names[static_cast<int>(test.param.rule)]) + "_" +
         std::to_string(test.param.bits);
}

INSTANTIATE_TEST_SUITE_P(Rules, Grids, testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace thinwire::kernel
