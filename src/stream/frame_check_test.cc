// Tests that every field that identifies a message is compared, and no other field.
// SPDX-License-Identifier: Apache-2.0
#include "stream/frame_check.h"

#include <gtest/gtest.h>

#include <string>

namespace thinwire {
namespace {

constexpr FrameHeader kExpected{.codec = 4,
                                .flags = kFrameRound,
                                .round = 1,
                                .sender = 2,
                                .generation = 3,
                                .stream = 5,
                                .step = 6,
                                .place = 7,
                                .count = 8,
                                .payload_size = 9};

std::string changed(void (*change)(FrameHeader&)) {
  FrameHeader header = kExpected;
  change(header);
  const char* const difference = frame_difference(header, kExpected);
  return difference == nullptr ? "" : difference;
}

TEST(FrameCheck, NamesTheFieldThatDiffers) {
  EXPECT_EQ(changed([](FrameHeader& h) { h.codec += 1; }), "codec");
  EXPECT_EQ(changed([](FrameHeader& h) { h.flags ^= kFrameRound; }), "kind of message");
  EXPECT_EQ(changed([](FrameHeader& h) { h.flags ^= kFrameResult; }), "kind of message");
  EXPECT_EQ(changed([](FrameHeader& h) { h.round += 1; }), "round");
  EXPECT_EQ(changed([](FrameHeader& h) { h.sender += 1; }), "sender");
  EXPECT_EQ(changed([](FrameHeader& h) { h.generation += 1; }), "generation");
  EXPECT_EQ(changed([](FrameHeader& h) { h.stream += 1; }), "stream");
  EXPECT_EQ(changed([](FrameHeader& h) { h.step += 1; }), "step");
  EXPECT_EQ(changed([](FrameHeader& h) { h.place += 1; }), "place");
  EXPECT_EQ(changed([](FrameHeader& h) { h.count += 1; }), "number of values");
}

TEST(FrameCheck, ASenderMaySayThatItHasNothing) {
  EXPECT_EQ(changed([](FrameHeader& h) { h.flags |= kFrameNonFinite; }), "");
  EXPECT_EQ(changed([](FrameHeader& h) { h.payload_size = 0; }), "");
}

}  // namespace
}  // namespace thinwire
