// sign and onebit through the public interface: sizes, tensors, the document's example,
// contraction.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

StreamSpec stream_of(std::vector<uint64_t> counts) {
  StreamSpec stream{.name = "w", .tensors = {}};
  for (const uint64_t count : counts)
    stream.tensors.push_back({.name = "t", .shape = {count}, .kind = TensorKind::kLinear});
  return stream;
}

std::unique_ptr<const Codec> make(const std::string& spec) {
  return std::move(make_codec(spec).value().codec);
}

std::vector<std::byte> encode(const Codec& codec, const StreamSpec& stream,
                              std::span<const float> values, std::span<float> rest) {
  std::vector<std::byte> payload(codec.max_encoded_size(stream));
  const auto encoded = codec.make_encoder(stream)->encode({.values = values}, {}, payload, rest);
  EXPECT_EQ(encoded.size, payload.size());
  EXPECT_EQ(encoded.kept, values.size());
  return payload;
}

std::vector<float> normal(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_normal({.seed = 3}, i);
  return values;
}

double square(std::span<const float> values) {
  double sum = 0;
  for (const float x : values) sum += double{x} * x;
  return sum;
}

TEST(OneBitCodecs, TakeAtMost1Point13BitsPerValue) {
  for (const char* name : {"sign", "onebit"})
    for (const char* block : {"", ":block=1024", ":block=4096", ":block=tensor"})
      EXPECT_LE(8.0 * static_cast<double>(
                          make(std::string(name) + block)->max_encoded_size(stream_of({1u << 20}))),
                1.13 * (1 << 20))
          << name << block;
}

TEST(OneBitCodecs, TensorsHaveLevelsOfTheirOwn) {
  const auto stream = stream_of({3, 0, 9});
  const std::vector<float> values = {1, -1, 4, 10, 10, 10, 10, -10, 10, 10, 10, -20};
  std::vector<float> rest(12), out(12);
  const auto sign = make("sign:block=tensor");
  const auto payload = encode(*sign, stream, values, rest);
  EXPECT_EQ(payload.size(), (4u + 1) + (4 + 2));
  ASSERT_TRUE(sign->make_decoder(stream)->decode_add(payload, 1, out).is_ok());
  const float second = 100.0f / 9;
  EXPECT_EQ(out, (std::vector<float>{2, -2, 2, second, second, second, second, -second, second,
                                     second, second, -second}));

  const auto onebit = make("onebit:block=tensor");
  std::fill(out.begin(), out.end(), 0.0f);
  ASSERT_TRUE(onebit->make_decoder(stream)
                  ->decode_add(encode(*onebit, stream, values, rest), 1, out)
                  .is_ok());
  EXPECT_EQ(out, (std::vector<float>{2.5f, -1, 2.5f, 10, 10, 10, 10, -15, 10, 10, 10, -15}));
}

TEST(OneBitCodecs, ZerosCountAsNotNegative) {
  const auto codec = make("sign");
  const std::vector<float> values = {0.0f, -0.0f, -3.0f};
  std::vector<float> rest(3);
  encode(*codec, stream_of({3}), values, rest);
  EXPECT_EQ(rest, (std::vector<float>{-1, -1, -2}));
}

TEST(OneBitCodecs, LeaveNoMoreThanABlockAllows) {
  const auto values = normal(1 << 18);
  for (const char* name : {"sign", "onebit"}) {
    auto rest = values;
    encode(*make(name), stream_of({values.size()}), values, rest);
    const double left = square(rest) / square(values);
    EXPECT_NEAR(left, 1 - 2 / std::numbers::pi, 0.004) << name;
  }
  // The least favourable block for a sign: one value that is not zero leaves 1 - 1/B.
  std::vector<float> spike(256);
  spike[77] = -8;
  auto rest = spike;
  encode(*make("sign"), stream_of({256}), spike, rest);
  EXPECT_NEAR(square(rest) / square(spike), 1 - 1.0 / 256, 1e-6);
}

TEST(OneBitCodecs, WriteTheExampleOfTheDocument) {
  const std::vector<float> values = {1, -2, 3};
  std::vector<float> rest(3);
  const auto payload = encode(*make("onebit"), stream_of({3}), values, rest);
  const std::vector<uint8_t> expected = {0, 0, 0, 0x40, 0, 0, 0, 0xC0, 2};
  ASSERT_EQ(payload.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(std::to_integer<uint8_t>(payload[i]), expected[i]) << i;
  EXPECT_EQ(rest, (std::vector<float>{-1, 0, 1}));
}

}  // namespace
}  // namespace thinwire
