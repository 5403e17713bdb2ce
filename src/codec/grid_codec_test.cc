// uniform, acsgd, qsgd, terngrad and natural through the public interface: grids, errors, draws,
// sizes.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

constexpr float kMax = std::numeric_limits<float>::max();

StreamSpec stream_of(size_t count, const std::string& name = "w") {
  return single_tensor({.name = name, .shape = {count}, .kind = TensorKind::kLinear});
}

struct Coded {
  std::vector<std::byte> payload;
  std::vector<float> decoded, rest;
};

Coded code(const std::string& spec, const std::vector<float>& values, const Call& call = {},
           const std::string& name = "w") {
  const auto codec = std::move(make_codec(spec).value().codec);
  const StreamSpec stream = stream_of(values.size(), name);
  Coded coded{.payload = std::vector<std::byte>(codec->max_encoded_size(stream)),
              .decoded = std::vector<float>(values.size()),
              .rest = std::vector<float>(values.size())};
  coded.payload.resize(codec->make_encoder(stream)
                           ->encode({.values = values}, call, coded.payload, coded.rest)
                           .size);
  codec->make_decoder(stream)->decode_add(coded.payload, 1, coded.decoded).or_throw();
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(coded.rest[i], values[i] - coded.decoded[i]) << spec << " " << i;
  return coded;
}

std::vector<float> normal(size_t count, float scale = 1) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = scale * random_normal({.seed = 3}, i);
  return values;
}

double square(const std::vector<float>& values) {
  double sum = 0;
  for (const float x : values) sum += double{x} * x;
  return sum;
}

TEST(Uniform, RoundsToTheNearestOfAnEvenGridFromLeastToMost) {
  const auto values = normal(1000);
  const auto [lo, hi] = std::minmax_element(values.begin(), values.end());
  for (int bits = 1; bits <= 8; ++bits) {
    const auto coded = code("uniform:block=tensor,bits=" + std::to_string(bits), values);
    EXPECT_EQ(coded.payload.size(), 8 + (1000 * static_cast<size_t>(bits) + 7) / 8);
    const double step = (double{*hi} - *lo) / ((1 << bits) - 1);
    std::set<float> levels(coded.decoded.begin(), coded.decoded.end());
    EXPECT_LE(levels.size(), size_t{1} << bits);
    EXPECT_NEAR(*levels.begin(), *lo, 1e-6);
    EXPECT_NEAR(*levels.rbegin(), *hi, 1e-6);
    for (size_t i = 0; i < values.size(); ++i) {
      const double level = std::round((values[i] - *lo) / step);
      EXPECT_LE(std::abs(coded.rest[i]), 0.50001 * step);
      EXPECT_NEAR(std::remainder(coded.decoded[i] - *lo, step), 0, 1e-5) << level;
    }
  }
}

TEST(Uniform, RandomRoundingTakesOneOfTheTwoNeighboursAtAnyWidth) {
  const auto values = normal(512);
  const auto [lo, hi] = std::minmax_element(values.begin(), values.end());
  for (int bits = 1; bits <= 8; ++bits) {
    const std::string spec = "uniform:block=tensor,rounding=random,bits=" + std::to_string(bits);
    const double step = (double{*hi} - *lo) / ((1 << bits) - 1);
    double bias = 0, chance = 0;
    for (uint64_t draw = 0; draw < 200; ++draw) {
      const auto coded = code(spec, values, {.step = draw});
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_LT(std::abs(coded.rest[i]), step * 1.0001);
        const double t = (values[i] - *lo) / step;
        bias += coded.rest[i] / step;
        chance += (t - std::floor(t)) * (1 - t + std::floor(t));
      }
      EXPECT_NEAR(*std::min_element(coded.decoded.begin(), coded.decoded.end()), *lo, 1e-5);
    }
    EXPECT_LE(std::abs(bias), 6 * std::sqrt(chance)) << bits;
  }
}

TEST(Uniform, EqualValuesAndTheWidestRangeAreNoSpecialCase) {
  for (const char* rounding : {"nearest", "random"}) {
    const std::string spec = std::string("uniform:rounding=") + rounding;
    for (const float value : {0.0f, 0.1f, -3e38f, 1e-45f, kMax}) {
      const auto coded = code(spec, std::vector<float>(300, value));
      EXPECT_EQ(coded.decoded, std::vector<float>(300, value)) << rounding;
    }
    const auto coded = code(spec, {kMax, -kMax, kMax, -kMax, 0});
    for (size_t i = 0; i < 5; ++i) EXPECT_LE(std::abs(coded.rest[i]), kMax / 7);
    EXPECT_GE(coded.decoded[0], kMax * 0.999f);
  }
}

TEST(Acsgd, FollowsTheRuleOfThePaper) {
  const auto values = normal(1000, 3);
  const float max = std::abs(*std::max_element(
      values.begin(), values.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
  for (int bits = 2; bits <= 8; ++bits) {
    const auto coded = code("acsgd:bits=" + std::to_string(bits), values);
    EXPECT_EQ(coded.payload.size(), 2 + (1000 * static_cast<size_t>(bits) + 7) / 8);
    const double codes = 1 << (bits - 1);
    size_t wrong = 0;
    double scale = 0;  // in binary16: eleven bits
    const double unit = std::exp2(std::ilogb(max) - 10);
    scale = std::nearbyint(max / unit) * unit;
    for (size_t i = 0; i < values.size(); ++i) {
      const double exact = codes * values[i] / scale;  // beside which 1e-6 is nothing in binary16
      const double c = std::clamp(std::nearbyint(exact), -codes, codes - 1);
      const bool tie = std::abs(exact - std::floor(exact) - 0.5) < 1e-6;  // t is a float
      wrong += !tie && coded.decoded[i] != static_cast<float>(c / codes * scale);
    }
    EXPECT_EQ(wrong, 0u) << bits;
  }
  EXPECT_EQ(code("acsgd:bits=2", {8, -8, 4}).decoded, (std::vector<float>{4, -8, 4}));
}

// As torch has it: torch.tensor(s, dtype=torch.float16) + 1e-6.
TEST(Acsgd, AddsItsMillionthInSixteenBits) {
  // 1.5 steps of 1/4, which 1 + 1e-6 would take for fewer.
  EXPECT_EQ(code("acsgd:bits=3", {1, 0.375f}).decoded, (std::vector<float>{0.75f, 0.5f}));
  // 1e-6 is 17 x 2^-24, and 1025 x 2^-23 + 8.5 x 2^-23 rounds to the even 1034 x 2^-23. 1e-6 itself
  // is 8.4 x 2^-23, which would give 1033 x 2^-23.
  const float scale = 1025 * 0x1p-23f, sum = 1034 * 0x1p-23f;
  const float half_way = 1.5f * sum / 128, step = scale / 128;
  const auto coded = code("acsgd:bits=8", {scale, half_way * 1.0001f, half_way * 0.9999f});
  EXPECT_EQ(coded.decoded[1], 2 * step);
  EXPECT_EQ(coded.decoded[2], step);
}

TEST(Acsgd, ScalesBeyondSixteenBitsSaturateOrVanish) {
  const auto huge = code("acsgd:bits=8", {1e6f, -1e6f, 100});
  EXPECT_EQ(huge.decoded[1], -65504.0f);
  EXPECT_EQ(huge.decoded[0], 65504.0f * 127 / 128);
  EXPECT_EQ(code("acsgd", {1e-9f, -1e-9f}).decoded, (std::vector<float>{0, 0}));
}

TEST(Qsgd, TakesOneOfTheTwoLevelsAroundAValue) {
  const auto values = normal(512);
  float max = 0;
  for (const float x : values) max = std::max(max, std::abs(x));
  for (const int levels : {1, 4, 7, 127})
    for (const char* norm : {"max", "l2"}) {
      const std::string spec = "qsgd:levels=" + std::to_string(levels) + ",norm=" + norm;
      const double scale =
          (norm == std::string("l2") ? std::sqrt(square(values)) : double{max}) / levels;
      const auto coded = code(spec, values);
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_LT(std::abs(coded.rest[i]), scale * 1.0001);
        EXPECT_NEAR(std::remainder(coded.decoded[i], scale), 0, 1e-5 * scale * levels);
        EXPECT_GE(coded.decoded[i] * values[i], 0) << "the sign stays";
      }
    }
}

TEST(Qsgd, ValuesOnALevelArriveAsTheyAre) {
  std::vector<float> values;
  for (int level = -127; level <= 127; ++level) values.push_back(0.25f * static_cast<float>(level));
  for (uint64_t step = 0; step < 50; ++step)
    EXPECT_EQ(code("qsgd:levels=127", values, {.step = step}).decoded, values);
  EXPECT_EQ(code("qsgd:norm=l2", std::vector<float>(600)).decoded, std::vector<float>(600));
}

// E |Q(v) - v|^2 <= min(d / s^2, sqrt(d) / s) |v|^2 and E |Q(v)|_0 <= s (s + sqrt(d)) for the l2
// norm [Alistarh et al., lemma 3.1].
TEST(Qsgd, VarianceAndNonZerosStayWithinThePapersBounds) {
  const auto values = normal(512);
  const double d = 512;
  for (const double s : {1.0, 4.0, 32.0}) {
    const std::string spec = "qsgd:norm=l2,levels=" + std::to_string(static_cast<int>(s));
    double variance = 0, kept = 0;
    constexpr int kDraws = 100;
    for (uint64_t step = 0; step < kDraws; ++step) {
      const auto coded = code(spec, values, {.step = step});
      variance += square(coded.rest) / kDraws;
      for (const float x : coded.decoded) kept += (x != 0) / double{kDraws};
    }
    EXPECT_LE(variance, std::min(d / (s * s), std::sqrt(d) / s) * square(values));
    EXPECT_LE(kept, s * (s + std::sqrt(d)));
    EXPECT_GT(kept, 0);
  }
}

TEST(Qsgd, EliasSaysTheSameInFewerBytesWhereMostIsZero) {
  const auto values = normal(4096);
  for (const char* options : {"levels=1,norm=l2", "levels=7", "levels=127", "levels=4,norm=l2"}) {
    const auto fixed = code(std::string("qsgd:") + options, values);
    const auto elias = code(std::string("qsgd:coding=elias,") + options, values);
    EXPECT_EQ(fixed.decoded, elias.decoded) << options;
    if (std::strstr(options, "l2") != nullptr) {
      EXPECT_LT(elias.payload.size() * 2, fixed.payload.size()) << options;
    }
  }
}

TEST(Terngrad, SendsSignsOfOneScale) {
  const auto values = normal(10000);
  float max = 0;
  for (const float x : values) max = std::max(max, std::abs(x));
  const auto plain = code("terngrad:clip=0", values);
  EXPECT_EQ(plain.payload.size(), 4u + 2500);
  double sigma = 0;
  for (const float x : values) sigma += double{x} * x / 10000;
  sigma = std::sqrt(sigma);
  const auto clipped = code("terngrad", values);
  size_t kept = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(plain.decoded[i] == 0 || plain.decoded[i] == std::copysign(max, values[i]));
    if (clipped.decoded[i] == 0) continue;
    EXPECT_NEAR(std::abs(clipped.decoded[i]), 2.5 * sigma, 0.002 * sigma);
    ++kept;
  }
  EXPECT_NEAR(static_cast<double>(kept), 10000 * 0.7979 / 2.5, 250);  // E|x| / 2.5
}

TEST(Terngrad, ConstantsAreNotClippedAway) {
  for (const float value : {0.5f, -1e-30f, 3e38f})
    EXPECT_EQ(code("terngrad", std::vector<float>(1000, value)).decoded,
              std::vector<float>(1000, value));
}

// Rounds bring every encoder the largest scale; without rounds it has its own again.
TEST(Terngrad, SharesTheLargestScaleOfAllRanksForOneStep) {
  const auto codec = std::move(make_codec("terngrad:clip=0,shared_scale=true").value().codec);
  const StreamSpec stream{.name = "s",
                          .tensors = {{.name = "a", .shape = {2}}, {.name = "b", .shape = {3}}}};
  ASSERT_EQ(codec->rounds(stream, false).size(), 1u);
  EXPECT_EQ(codec->rounds(stream, false)[0].size, 8u);
  const std::vector<float> own = {1, -0.5f, 0.25f, 0, 0};
  const auto encoder = codec->make_encoder(stream);
  float scales[2] = {};
  EXPECT_EQ(encoder->offer(0, {.values = own}, {}, std::as_writable_bytes(std::span(scales))), 8u);
  EXPECT_EQ(scales[0], 1);
  EXPECT_EQ(scales[1], 0.25f);

  const auto scale_of_a = [&] {
    std::vector<std::byte> payload(codec->max_encoded_size(stream));
    std::vector<float> rest(own.size());
    encoder->encode({.values = own}, {}, payload, rest);
    float scale;
    std::memcpy(&scale, payload.data(), sizeof scale);
    for (const float x : {own[0] - rest[0], own[1] - rest[1]})
      EXPECT_TRUE(x == 0 || std::abs(x) == scale);
    return scale;
  };
  scales[0] = 7;
  ASSERT_TRUE(encoder->adopt(0, std::as_bytes(std::span(scales))).is_ok());
  EXPECT_EQ(scale_of_a(), 7);
  encoder->commit();
  EXPECT_EQ(scale_of_a(), 1);
  for (const float bad : {-1.0f, -0.0f, std::numeric_limits<float>::infinity()}) {
    scales[1] = bad;
    EXPECT_EQ(encoder->adopt(0, std::as_bytes(std::span(scales))).code(), ErrorCode::kCorrupt);
  }
}

TEST(Natural, TakesOneOfTheTwoPowersAroundAValue) {
  const auto values = normal(1003);
  const auto coded = code("natural", values);
  EXPECT_EQ(coded.payload.size(), 1003u + 126);
  double left = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const float below = std::exp2(std::floor(std::log2(std::abs(values[i]))));
    const float magnitude = std::abs(coded.decoded[i]);
    EXPECT_TRUE(magnitude == below || magnitude == 2 * below) << values[i];
    EXPECT_EQ(std::signbit(coded.decoded[i]), std::signbit(values[i]));
    left += double{coded.rest[i]} * coded.rest[i];
  }
  EXPECT_LE(left, square(values) / 8);
}

TEST(Natural, PowersArriveAsTheyAreAndTheRangeHasAnEnd) {
  std::vector<float> values = {0.0f};
  for (int e = -126; e <= 127; ++e) values.push_back(std::ldexp(e % 2 ? 1.0f : -1.0f, e));
  EXPECT_EQ(code("natural", values).decoded, values);
  EXPECT_EQ(code("natural", {kMax, -kMax}).decoded, (std::vector<float>{0x1p127f, -0x1p127f}));
  for (const float x : code("natural", std::vector<float>(100, 0x1p-127f)).decoded)
    EXPECT_TRUE(x == 0 || x == 0x1p-126f);
}

TEST(Draws, DifferBetweenStepsSendersPartsAndStreams) {
  const auto values = normal(1024);
  for (const char* spec :
       {"uniform:rounding=random", "qsgd", "qsgd:coding=elias", "terngrad", "natural"}) {
    const Call call{.seed = 1, .step = 1, .salt = 1};
    const auto first = code(spec, values, call).payload;
    EXPECT_EQ(code(spec, values, call).payload, first);
    EXPECT_NE(code(spec, values, {.seed = 2, .step = 1, .salt = 1}).payload, first);
    EXPECT_NE(code(spec, values, {.seed = 1, .step = 2, .salt = 1}).payload, first);
    EXPECT_NE(code(spec, values, {.seed = 1, .step = 1, .salt = 2}).payload, first);
    EXPECT_NE(code(spec, values, {.seed = 1, .step = 1, .salt = 1, .offset = 8}).payload, first);
    EXPECT_NE(code(spec, values, call, "another").payload, first);
  }
}

}  // namespace
}  // namespace thinwire
