// Tests of the range coder: bits come back, the size is near the entropy, any bytes are bits.
// SPDX-License-Identifier: Apache-2.0
#include "shrink/range_coder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"

namespace thinwire {
namespace {

constexpr uint64_t kBits = 20000;

// Bits of which a share is one, in two kinds that take turns.
std::vector<bool> draw(double share, uint64_t seed) {
  const RandomKey key{.seed = seed, .use = RandomUse::kTest};
  std::vector<bool> bits;
  for (uint64_t i = 0; i < kBits; ++i)
    bits.push_back(static_cast<double>(random_below(key, i, 1u << 20)) <
                   (i % 2 == 0 ? share : 1 - share) * (1u << 20));
  return bits;
}

std::vector<std::byte> encode(const std::vector<bool>& bits) {
  BitModel models[2];
  RangeEncoder encoder;
  for (size_t i = 0; i < bits.size(); ++i) encoder.code(models[i % 2], bits[i]);
  return encoder.finish();
}

TEST(RangeCoder, BitsComeBackAndEveryByteIsRead) {
  for (const double share : {0.0, 0.001, 0.1, 0.5, 0.999, 1.0}) {
    const auto bits = draw(share, 7);
    const auto bytes = encode(bits);
    BitModel models[2];
    RangeDecoder decoder(bytes);
    for (size_t i = 0; i < bits.size(); ++i) ASSERT_EQ(decoder.code(models[i % 2]), bits[i]) << i;
    EXPECT_TRUE(decoder.is_at_end());
  }
}

// A carry runs through bytes of 0xFF only in rare sequences: many short ones find them.
TEST(RangeCoder, ManyShortSequencesComeBack) {
  const RandomKey key{.seed = 3, .use = RandomUse::kTest};
  uint64_t asked = 0;
  for (int round = 0; round < 3000; ++round) {
    const uint64_t share = random_below(key, asked++, 257);
    std::vector<bool> bits;
    for (uint64_t i = random_below(key, asked++, 200); i > 0; --i)
      bits.push_back(random_below(key, asked++, 256) < share);
    const auto bytes = encode(bits);
    BitModel models[2];
    RangeDecoder decoder(bytes);
    for (size_t i = 0; i < bits.size(); ++i) ASSERT_EQ(decoder.code(models[i % 2]), bits[i]);
    ASSERT_TRUE(decoder.is_at_end());
  }
}

TEST(RangeCoder, TheSizeIsNearTheEntropy) {
  for (const double share : {0.02, 0.2, 0.5}) {
    const double entropy = -share * std::log2(share) - (1 - share) * std::log2(1 - share);
    const double bits = 8.0 * static_cast<double>(encode(draw(share, 11)).size());
    EXPECT_GT(bits, 0.95 * entropy * kBits) << share;
    EXPECT_LT(bits, 1.15 * entropy * kBits + 40)
        << share;  // estimates cost the most where ones are rare
  }
}

TEST(RangeCoder, NoByteStandsForMoreBitsThanPromised) {
  const std::vector<bool> same(1 << 20);
  EXPECT_LE(same.size(), encode(same).size() * kMostBitsPerByte);
}

TEST(RangeCoder, BytesThatAreMissingAreNoticed) {
  const auto bits = draw(0.3, 5);
  auto bytes = encode(bits);
  bytes.pop_back();
  BitModel models[2];
  RangeDecoder decoder(bytes);
  for (size_t i = 0; i < bits.size(); ++i) decoder.code(models[i % 2]);
  EXPECT_FALSE(decoder.is_at_end());
}

}  // namespace
}  // namespace thinwire
