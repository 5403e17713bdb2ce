// signum: bits of signs, ties that cancel over two steps, and votes of ranks.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "thinwire/codec.h"

namespace thinwire {
namespace {

StreamSpec stream_of(size_t count) {
  return single_tensor({.name = "w", .shape = {count}, .kind = TensorKind::kLinear});
}

std::vector<float> signs_of(const std::vector<float>& values, const Call& call) {
  const auto codec = std::move(make_codec("signum")).value().codec;
  const StreamSpec stream = stream_of(values.size());
  std::vector<std::byte> payload(codec->max_encoded_size(stream));
  codec->make_encoder(stream)->encode({.values = values}, call, payload, {});
  std::vector<float> signs(values.size());
  codec->make_decoder(stream)->decode_add(payload, 1.0f, signs).or_throw();
  return signs;
}

TEST(Signum, KeepsSignsOnly) {
  EXPECT_EQ(signs_of({3.0f, -1e-45f, 1e-45f, -7.0f}, {}), (std::vector<float>{1, -1, 1, -1}));
}

TEST(Signum, ZerosAreOneAndMinusOneInTurn) {
  const std::vector<float> zeros(2049, 0.0f);
  const auto even = signs_of(zeros, {.step = 4}), odd = signs_of(zeros, {.step = 5});
  for (size_t i = 0; i < zeros.size(); ++i) {
    ASSERT_EQ(even[i], i % 2 == 0 ? 1 : -1) << i;
    ASSERT_EQ(even[i] + odd[i], 0) << i;
  }
}

TEST(Signum, NegativeZerosAreZeros) {
  EXPECT_EQ(signs_of({-0.0f, -0.0f}, {.step = 0}), (std::vector<float>{1, -1}));
}

TEST(Signum, ChunksTakeTheirPlaceInTheStream) {
  EXPECT_EQ(signs_of({0.0f}, {.step = 0, .offset = 8}), signs_of({0.0f}, {.step = 1, .offset = 9}));
  EXPECT_NE(signs_of({0.0f}, {.step = 0, .offset = 8}), signs_of({0.0f}, {.step = 1, .offset = 8}));
}

TEST(Signum, UnusedBitsAreNotLookedAt) {
  const auto codec = std::move(make_codec("signum")).value().codec;
  std::vector<float> out(3);
  const std::byte payload[] = {std::byte{0b11111010}};
  EXPECT_TRUE(codec->make_decoder(stream_of(3))->decode_add(payload, 0.5f, out));
  EXPECT_EQ(out, (std::vector<float>{0.5f, -0.5f, 0.5f}));
}

}  // namespace
}  // namespace thinwire
