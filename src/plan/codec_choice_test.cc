// Which of several planned codecs is chosen.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec_choice.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {
namespace {

using testing::Optional;

CodecStep step(double seconds, const std::vector<double>& points) {
  CodecStep made{.seconds = seconds};
  for (const double one : points)
    made.accuracy.push_back({.codec = "", .model = "net", .epochs = 1, .points = one, .seeds = 1});
  return made;
}

TEST(CodecChoice, IsTheFastestThatKeepsAccuracy) {
  const std::vector<CodecStep> steps = {step(1, {1.1}), step(3, {0.9}), step(2, {0.5, -0.2})};
  EXPECT_THAT(choose_codec(steps, 10), Optional(2));
  EXPECT_EQ(choose_codec({}, 10), std::nullopt);
}

TEST(CodecChoice, IsTheMildestOfThoseThatAreEquallyFast) {
  EXPECT_THAT(choose_codec(std::vector{step(1, {0.9}), step(1.04, {0.8})}, 10), Optional(1));
  EXPECT_THAT(choose_codec(std::vector{step(1, {0.9}), step(1.06, {0.8})}, 10), Optional(0));
  // Known on more networks counts more than fewer points.
  EXPECT_THAT(choose_codec(std::vector{step(1, {0.1}), step(1.04, {0.8, 0.2})}, 10), Optional(1));
}

TEST(CodecChoice, OfUnknownErrorOnlyWhereNoOtherIsWorthIt) {
  EXPECT_THAT(choose_codec(std::vector{step(1, {}), step(9, {0.5})}, 10), Optional(1));
  EXPECT_THAT(choose_codec(std::vector{step(1, {}), step(9.9, {0.5})}, 10), Optional(0));
  EXPECT_THAT(choose_codec(std::vector{step(9.85, {}), step(9.9, {0.5})}, 10), Optional(1));
}

TEST(CodecChoice, KeepsTheFastestWhereTheMildestIsNotWorthIt) {
  EXPECT_THAT(choose_codec(std::vector{step(9.7, {0.9}), step(9.9, {0.1})}, 10), Optional(0));
}

TEST(CodecChoice, CodecsThatLeaveMostValuesWantAShortTrial) {
  for (const char* codec : {"topk:density=0.5", "sidco", "adacomp", "scalecom", "lgc", "srht"})
    EXPECT_TRUE(wants_short_trial(codec)) << codec;
  for (const char* codec :
       {"fp32", "int8", "sign", "powersgd:rank=1", "randomk:scaled=true", "srht:scaled=true"})
    EXPECT_FALSE(wants_short_trial(codec)) << codec;
  EXPECT_THROW(wants_short_trial("nothing"), Error);
}

TEST(CodecChoice, LooksCodecsUpWhateverTheOrderOfTheirOptions) {
  EXPECT_FALSE(known_accuracies().empty());
  const auto known = accuracy_of("topk:values=int8,density=0.01");
  ASSERT_EQ(known.size(), 2u);
  for (const KnownAccuracy& one : known) EXPECT_EQ(one.codec, "topk:density=0.01,values=int8");
  EXPECT_TRUE(accuracy_of("topk:density=0.07").empty());
  EXPECT_THROW(accuracy_of("topq"), Error);
}

}  // namespace
}  // namespace thinwire
