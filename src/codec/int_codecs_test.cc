// int8 and int4 through the public interface: sizes, the document's example, error bounds, zeros.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

StreamSpec stream_of(size_t count) {
  return single_tensor({.name = "w", .shape = {count}, .kind = TensorKind::kLinear});
}

std::vector<std::byte> encode(const Codec& codec, std::span<const float> values,
                              std::span<float> rest) {
  const auto stream = stream_of(values.size());
  std::vector<std::byte> payload(codec.max_encoded_size(stream));
  const auto encoded = codec.make_encoder(stream)->encode({.values = values}, {}, payload, rest);
  EXPECT_EQ(encoded.size, payload.size());
  EXPECT_EQ(encoded.kept, values.size());
  return payload;
}

struct Case {
  const char* name;
  size_t bits;
  int largest;  // m
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class IntCodecs : public testing::TestWithParam<Case> {};

TEST_P(IntCodecs, SizeAndBlockFollowTheOption) {
  for (const size_t block : {64, 256, 1024, 4096}) {
    const auto named =
        make_codec(std::string(GetParam().name) + ":block=" + std::to_string(block)).value();
    EXPECT_EQ(named.codec->info().block, block);
    EXPECT_EQ(named.codec->max_encoded_size(stream_of(3 * block)),
              3 * (4 + block * GetParam().bits / 8));
    EXPECT_EQ(named.codec->max_encoded_size(stream_of(3 * block + 5)),
              3 * (4 + block * GetParam().bits / 8) + 4 + (5 * GetParam().bits + 7) / 8);
    EXPECT_EQ(named.codec->max_encoded_size(stream_of(0)), 0u);
  }
  EXPECT_FALSE(make_codec(std::string(GetParam().name) + ":block=100").is_ok());
}

// What error feedback needs: no value grows, and all but a fraction of the norm arrives.
TEST_P(IntCodecs, LeavesAtMostHalfAScale) {
  const auto codec = std::move(make_codec(GetParam().name).value().codec);
  std::vector<float> values(200000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal({.seed = 3}, i);
  auto rest = values;
  encode(*codec, values, rest);
  double left = 0, norm = 0;
  for (size_t begin = 0; begin < values.size(); begin += 256) {
    float max = 0;
    const size_t end = std::min(begin + 256, values.size());
    for (size_t i = begin; i < end; ++i) max = std::max(max, std::abs(values[i]));
    for (size_t i = begin; i < end; ++i) {
      EXPECT_LE(std::abs(rest[i]), 0.5001f * max / static_cast<float>(GetParam().largest));
      left += double{rest[i]} * rest[i];
      norm += double{values[i]} * values[i];
    }
  }
  const double expected = GetParam().bits == 8 ? 0.0070 : 0.1260;
  EXPECT_NEAR(std::sqrt(left / norm), expected, 0.02 * expected);
}

TEST_P(IntCodecs, BlocksTooSmallForAScaleBecomeZeros) {
  const auto codec = std::move(make_codec(GetParam().name).value().codec);
  const float largest = static_cast<float>(GetParam().largest) * 0x1p-126f;
  for (const float value : {std::nextafter(largest, 0.0f), 1e-45f, 0.0f}) {
    const std::vector<float> values(300, value);
    std::vector<float> rest(300), out(300);
    const auto payload = encode(*codec, values, rest);
    EXPECT_EQ(payload, std::vector<std::byte>(payload.size()));
    EXPECT_EQ(rest, values);
  }
  const std::vector<float> values(300, largest);
  std::vector<float> rest(300, 1.0f);
  encode(*codec, values, rest);
  EXPECT_EQ(rest, std::vector<float>(300, 0.0f));
}

INSTANTIATE_TEST_SUITE_P(All, IntCodecs, testing::Values(Case{"int8", 8, 127}, Case{"int4", 4, 7}),
                         [](const auto& param) { return param.param.name; });

TEST(Int4, WritesTheExampleOfTheDocument) {
  const auto codec = std::move(make_codec("int4").value().codec);
  const std::vector<float> values = {1.0f, -7.0f, 2.4f};
  std::vector<float> rest(3);
  const std::vector<std::byte> expected = {std::byte{0x00}, std::byte{0x00}, std::byte{0x80},
                                           std::byte{0x3F}, std::byte{0x91}, std::byte{0x02}};
  EXPECT_EQ(encode(*codec, values, rest), expected);
  EXPECT_EQ(rest, (std::vector<float>{0.0f, 0.0f, 2.4f - 2.0f}));
}

}  // namespace
}  // namespace thinwire
