// threshold: the mask, its bound, and what happens when everything or nothing passes.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "codec/testing/sparsifier_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Threshold, SendsWhatReachesIt) {
  Sender sender("threshold:threshold=0.5", 6);
  const Encoded encoded = sender.step(std::vector{0.5f, -0.5f, 0.49999997f, -2.0f, 0.0f, -0.1f});
  EXPECT_THAT(sender.sent, ElementsAre(0.5f, -0.5f, 0, -2.0f, 0, 0));
  EXPECT_THAT(sender.residual, ElementsAre(0, 0, 0.49999997f, 0, 0, -0.1f));
  EXPECT_EQ(encoded.kept, 3u);
  EXPECT_EQ(encoded.target, 0u);
}

TEST(Threshold, MatchesAPlainLoopAndLosesNothing) {
  constexpr size_t kCount = 20'011;
  for (const float threshold : {0.1f, 3.0f, 8.0f}) {
    Sender sender("threshold:threshold=" + std::to_string(threshold), kCount);
    for (uint64_t step = 0; step < 4; ++step) {
      const Encoded encoded = sender.step(draw(laplace, step, kCount));
      size_t kept = 0;
      for (size_t i = 0; i < kCount; ++i) {
        const bool passes = std::abs(sender.before[i]) >= threshold;
        ASSERT_EQ(sender.sent[i], passes ? sender.before[i] : 0);
        ASSERT_EQ(sender.residual[i], passes ? 0 : sender.before[i]);
        kept += passes;
      }
      EXPECT_EQ(encoded.kept, kept);
    }
  }
}

// With feedback a value too small for the threshold arrives late, not never.
TEST(Threshold, NothingPassesUntilEnoughHasGathered) {
  Sender sender("threshold:threshold=1", 3);
  for (int step = 1; step <= 3; ++step) {
    EXPECT_EQ(sender.step(std::vector{0.25f, 0.0f, -0.125f}).kept, 0u);
    EXPECT_EQ(sender.payload.size(), 8u);
  }
  EXPECT_EQ(sender.step(std::vector{0.25f, 0.0f, -0.125f}).kept, 1u);
  EXPECT_THAT(sender.sent, ElementsAre(1.0f, 0, 0));
  EXPECT_THAT(sender.residual, ElementsAre(0, 0, -0.5f));
}

TEST(Threshold, EverythingPassesWithinItsBound) {
  constexpr size_t kCount = 100'000;
  const std::vector<float> values(kCount, -7.0f);
  Sender open("threshold", kCount);
  EXPECT_EQ(open.step(values).kept, kCount);
  EXPECT_EQ(open.sent, values);
  EXPECT_NEAR(8.0 * static_cast<double>(open.payload.size()) / kCount, 33, 0.1);

  Sender bounded("threshold:max_density=0.25", kCount);
  EXPECT_LT(bounded.bound(), open.bound() / 3);
  auto uneven = draw(laplace, 0, kCount);
  EXPECT_EQ(bounded.step(uneven).kept, kCount / 4);
  EXPECT_GT(bounded.least_sent(), bounded.largest_left());
}

TEST(Threshold, DegenerateVectorsHaveAnAnswer) {
  Sender zeros("threshold:threshold=0", 1000);
  EXPECT_EQ(zeros.step(std::vector<float>(1000)).kept, 0u);
  std::vector<float> values(1000);
  values[3] = 1e-45f;
  values[999] = -std::numeric_limits<float>::max();
  EXPECT_EQ(zeros.step(values).kept, 2u);
  EXPECT_EQ(zeros.sent, values);
  Sender none("threshold", 0);
  EXPECT_EQ(none.step({}).kept, 0u);
  Sender one("threshold:max_density=0.000001", 1);
  EXPECT_EQ(one.step(std::vector{3.0f}).kept, 1u);
}

TEST(Threshold, OptionsAreChecked) {
  EXPECT_THAT(make_codec("threshold:threshold=-1").status().message(), HasSubstr("threshold"));
  EXPECT_FALSE(make_codec("threshold:max_density=0").is_ok());
  EXPECT_FALSE(make_codec("threshold:density=0.1").is_ok());
}

}  // namespace
}  // namespace thinwire::testing
