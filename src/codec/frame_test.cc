// Frames: what is sealed is read back; every flipped bit and every truncation is refused.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/frame.h"

#include <gtest/gtest.h>

#include <vector>

namespace thinwire {
namespace {

std::vector<std::byte> sample_frame(size_t payload_size) {
  std::vector<std::byte> bytes(kFrameHeaderSize + payload_size);
  for (size_t i = 0; i < payload_size; ++i) bytes[kFrameHeaderSize + i] = std::byte(i * 7 + 1);
  seal_frame({.codec = 6,
              .flags = 0,
              .sender = 3,
              .generation = 9,
              .stream = 0x01020304,
              .step = 0x112233445566,
              .place = 0x665544332211,
              .count = 123456789012,
              .payload_size = payload_size},
             bytes);
  return bytes;
}

TEST(Frame, ComesBackAsSealed) {
  const auto bytes = sample_frame(17);
  auto frame = read_frame(bytes);
  ASSERT_TRUE(frame.is_ok()) << frame.status().message();
  const FrameHeader& header = frame.value().header;
  EXPECT_EQ(header.codec, 6);
  EXPECT_EQ(header.sender, 3);
  EXPECT_EQ(header.generation, 9u);
  EXPECT_EQ(header.stream, 0x01020304u);
  EXPECT_EQ(header.step, 0x112233445566u);
  EXPECT_EQ(header.place, 0x665544332211u);
  EXPECT_EQ(header.count, 123456789012u);
  ASSERT_EQ(frame.value().payload.size(), 17u);
  EXPECT_EQ(frame.value().payload.data(), bytes.data() + kFrameHeaderSize);
}

TEST(Frame, LeavesWhatFollowsAlone) {
  auto bytes = sample_frame(5);
  bytes.resize(bytes.size() + 40);
  auto frame = read_frame(bytes);
  ASSERT_TRUE(frame.is_ok());
  EXPECT_EQ(frame.value().payload.size(), 5u);
}

TEST(Frame, RefusesEveryFlippedBit) {
  const auto good = sample_frame(9);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bad = good;
    bad[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_FALSE(read_frame(bad).is_ok()) << "bit " << bit;
  }
}

TEST(Frame, RefusesEveryTruncation) {
  const auto good = sample_frame(9);
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(read_frame(std::span(good).first(size)).is_ok()) << size;
}

TEST(Frame, RefusesNonFiniteFlagWithPayload) {
  auto bytes = sample_frame(4);
  seal_frame({.flags = kFrameNonFinite, .payload_size = 4}, bytes);
  EXPECT_EQ(read_frame(bytes).status().code(), ErrorCode::kCorrupt);
  seal_frame({.flags = 8, .payload_size = 4}, bytes);
  EXPECT_EQ(read_frame(bytes).status().code(), ErrorCode::kCorrupt);
}

TEST(Frame, RoundsHaveANumberAndNothingElseDoes) {
  auto bytes = sample_frame(4);
  seal_frame({.flags = kFrameRound, .round = 3, .payload_size = 4}, bytes);
  EXPECT_EQ(read_frame(bytes).value().header.round, 3);
  seal_frame({.flags = 0, .round = 3, .payload_size = 4}, bytes);
  EXPECT_EQ(read_frame(bytes).status().code(), ErrorCode::kCorrupt);
}

TEST(Frame, SealingChecksTheSpan) {
  std::vector<std::byte> bytes(kFrameHeaderSize + 3);
  EXPECT_THROW(seal_frame({.payload_size = 4}, bytes), Error);
  EXPECT_THROW(seal_frame({.step = kFrameFieldMax + 1, .payload_size = 3}, bytes), Error);
  EXPECT_THROW(seal_frame({.place = kFrameFieldMax + 1, .payload_size = 3}, bytes), Error);
  EXPECT_THROW(seal_frame({.count = kFrameFieldMax + 1, .payload_size = 3}, bytes), Error);
  EXPECT_NO_THROW(seal_frame({.place = kFrameFieldMax, .payload_size = 3}, bytes));
}

}  // namespace
}  // namespace thinwire
