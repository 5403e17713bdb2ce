// fp32, fp16 and bf16 through the public interface: values, remainders, and what a decoder refuses.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "thinwire/codec.h"

namespace thinwire {
namespace {

StreamSpec stream_of(size_t count) {
  return single_tensor({.name = "w", .shape = {count}, .kind = TensorKind::kLinear});
}

struct Case {
  const char* name;
  size_t size;      // bytes per value
  float precision;  // largest relative error of values that are neither tiny nor huge
  float max;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class FloatCodecs : public testing::TestWithParam<Case> {
 protected:
  FloatCodecs() : codec_(std::move(make_codec(GetParam().name).value().codec)) {}

  // The payload, and `rest` with the remainder.
  std::vector<std::byte> encode(std::span<const float> values, std::span<float> rest) {
    const auto stream = stream_of(values.size());
    std::vector<std::byte> payload(codec_->max_encoded_size(stream));
    const auto encoded =
        codec_->make_encoder(stream)->encode({.values = values}, {}, payload, rest);
    EXPECT_EQ(encoded.size, payload.size());
    EXPECT_EQ(encoded.size, values.size() * GetParam().size);
    EXPECT_EQ(encoded.kept, values.size());
    return payload;
  }

  std::unique_ptr<const Codec> codec_;
};

TEST_P(FloatCodecs, RestIsWhatTheDecoderLeaves) {
  std::vector<float> values;
  for (int i = 0; i < 1003; ++i)
    values.push_back(static_cast<float>(std::sin(i) * std::pow(10.0, i % 8 - 4)));
  auto rest = values;
  const auto payload = encode(values, rest);
  auto out = values;
  ASSERT_TRUE(codec_->make_decoder(stream_of(values.size()))->decode_add(payload, -1, out).is_ok());
  EXPECT_EQ(out, rest);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_LE(std::abs(rest[i]), GetParam().precision * std::abs(values[i]) + 0x1p-25f);
}

TEST_P(FloatCodecs, DecodeAddsWithWeight) {
  const std::vector<float> values = {1, -2, 0.5f, 1024};
  std::vector<float> out = {10, 10, 10, 10};
  const auto payload = encode(values, {});
  ASSERT_TRUE(codec_->make_decoder(stream_of(4))->decode_add(payload, 0.25f, out).is_ok());
  EXPECT_EQ(out, (std::vector<float>{10.25f, 9.5f, 10.125f, 266}));
}

TEST_P(FloatCodecs, SaturatesAndLeavesTheDifference) {
  const float huge = std::numeric_limits<float>::max();
  const std::vector<float> values = {huge, -huge};
  std::vector<float> rest(2), out(2);
  const auto payload = encode(values, rest);
  ASSERT_TRUE(codec_->make_decoder(stream_of(2))->decode_add(payload, 1, out).is_ok());
  EXPECT_EQ(out, (std::vector<float>{GetParam().max, -GetParam().max}));
  EXPECT_EQ(rest, (std::vector<float>{huge - GetParam().max, GetParam().max - huge}));
}

TEST_P(FloatCodecs, RefusesWrongLengthsAndNonFiniteValues) {
  const std::vector<float> values = {1, 2, 3};
  const auto payload = encode(values, {});
  const auto decoder = codec_->make_decoder(stream_of(3));
  std::vector<float> out(3);
  for (size_t size = 0; size < payload.size(); ++size)
    EXPECT_EQ(decoder->decode_add(std::span(payload).first(size), 1, out).code(),
              ErrorCode::kBadLength);
  auto longer = payload;
  longer.push_back({});
  EXPECT_EQ(decoder->decode_add(longer, 1, out).code(), ErrorCode::kBadLength);
  for (size_t i = 0; i < 3; ++i) {
    auto bad = payload;
    std::memset(bad.data() + i * GetParam().size, 0xFF, GetParam().size);
    EXPECT_EQ(decoder->decode_add(bad, 1, out).code(), ErrorCode::kCorrupt);
  }
}

TEST_P(FloatCodecs, NoValuesNoBytes) {
  EXPECT_TRUE(encode({}, {}).empty());
  EXPECT_TRUE(codec_->make_decoder(stream_of(0))->decode_add({}, 1, {}).is_ok());
}

INSTANTIATE_TEST_SUITE_P(All, FloatCodecs,
                         testing::Values(Case{"fp32", 4, 0, std::numeric_limits<float>::max()},
                                         Case{"fp16", 2, 0x1p-11f, 65504},
                                         Case{"bf16", 2, 0x1p-8f, 0x1.FEp127f}),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace thinwire
