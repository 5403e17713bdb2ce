// dgc: how near the sampled threshold comes, when it re-selects, and degenerate vectors.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "codec/testing/sparsifier_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCount = 100'003;

// The j-th largest of S values has j/S of the vector above it, give or take 1/sqrt(j).
TEST(Dgc, KeepsTheTargetOnAverageAndWithinItsBound) {
  for (const Law law : {laplace, normal, student3}) {
    Sender sender("dgc:density=0.01,excess=3", kCount);
    const auto values = draw(law, 0, kCount);
    double sum = 0, square_sum = 0;
    for (int step = 0; step < 100; ++step) {  // each takes another sample
      const double kept = static_cast<double>(sender.step(values, false).kept);
      ASSERT_LE(kept, 3000);
      sum += kept;
      square_sum += kept * kept;
    }
    const double mean = sum / 100, deviation = std::sqrt(square_sum / 100 - mean * mean);
    EXPECT_NEAR(mean, 1000, 60);      // three standard errors
    EXPECT_NEAR(deviation, 177, 45);  // j = 32
  }
}

TEST(Dgc, SendsTheLargestAndLosesNothing) {
  for (const std::string spec : {"dgc", "dgc:density=0.001", "dgc:sample=0.5", "dgc:excess=1"}) {
    Sender sender(spec, kCount);
    for (uint64_t step = 0; step < 5; ++step) {
      const Encoded encoded = sender.step(draw(student3, step, kCount));
      EXPECT_GT(sender.least_sent(), sender.largest_left()) << spec;
      size_t sent = 0;
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(sender.sent[i] + sender.residual[i], sender.before[i]) << spec;
        ASSERT_TRUE(sender.sent[i] == 0 || sender.residual[i] == 0) << spec;
        sent += sender.sent[i] != 0;
      }
      EXPECT_EQ(sent, encoded.kept);
    }
  }
}

// Far too many pass: exactly the k largest are left of them.
TEST(Dgc, ReselectsTheTargetAboveItsExcess) {
  const size_t exact = 1000;
  size_t reselected = 0;
  for (uint64_t step = 0; step < 30; ++step) {
    const auto values = draw(normal, step, kCount);
    Sender open("dgc:excess=100", kCount), bounded("dgc:excess=1.2", kCount);
    open.call.step = bounded.call.step = step;  // the same sample
    const size_t passed = open.step(values).kept;
    const size_t kept = bounded.step(values).kept;
    EXPECT_EQ(kept, passed > 1200 ? exact : passed);
    if (passed <= 1200) continue;
    ++reselected;
    Sender best("topk:density=0.01", kCount);
    best.step(values);
    EXPECT_EQ(bounded.sent, best.sent);
  }
  EXPECT_GT(reselected, 0u);
  EXPECT_LT(reselected, 30u);
}

TEST(Dgc, ShortVectorsNeedNoSample) {
  for (const size_t count : {1, 2, 50, 3199}) {  // 32 / density = 3200
    const auto values = draw(laplace, 0, count);
    Sender sampled("dgc", count), best("topk", count);
    const Encoded encoded = sampled.step(values);
    EXPECT_EQ(encoded.kept, encoded.target);
    best.step(values);
    EXPECT_EQ(sampled.sent, best.sent);
  }
}

TEST(Dgc, StepsRanksAndPartsSampleOtherPlaces) {
  const auto values = draw(laplace, 0, kCount);
  const auto kept = [&](const Call& call) {
    Sender sender("dgc:excess=100", kCount);
    sender.call = call;
    return sender.step(values).kept;
  };
  const size_t first = kept({});
  EXPECT_EQ(kept({}), first);
  EXPECT_NE(kept({.step = 1}), first);
  EXPECT_NE(kept({.salt = 1}), first);
  EXPECT_NE(kept({.offset = 1}), first);
  EXPECT_NE(kept({.seed = 1}), first);
}

TEST(Dgc, DegenerateVectorsHaveAnAnswer) {
  for (const size_t count : {size_t{500}, kCount}) {  // without and with a sample
    Sender sender("dgc", count);
    const size_t target = sender.step(std::vector<float>(count)).target;
    EXPECT_EQ(sender.sent, std::vector<float>(count));

    // All alike: the target's number, from the lowest position up.
    EXPECT_EQ(sender.step(std::vector<float>(count, -2.5f)).kept, target);
    EXPECT_EQ(sender.sent[target - 1], -2.5f);
    EXPECT_EQ(sender.sent[target], 0.0f);

    // Mostly zeros: the sampled threshold is 0, and zeros are not sent.
    std::vector<float> values(count);
    values[count / 3] = 1e-42f;
    values[count / 2] = -3;
    Sender sparse("dgc", count);
    EXPECT_EQ(sparse.step(values).kept, 2u);
    EXPECT_EQ(sparse.sent, values);
  }
  Sender everything("dgc:density=1", kCount);  // a sample's least is not the vector's
  EXPECT_EQ(everything.step(draw(normal, 0, kCount)).kept, kCount);
  Sender none("dgc", 0);
  EXPECT_EQ(none.step({}).kept, 0u);
}

TEST(Dgc, OptionsAreChecked) {
  for (const char* bad : {"dgc:density=0", "dgc:sample=0", "dgc:sample=1.5", "dgc:excess=0.5"})
    EXPECT_FALSE(make_codec(bad).is_ok()) << bad;
  EXPECT_THAT(make_codec("dgc:ratio=1").status().message(), HasSubstr("excess"));
}

}  // namespace
}  // namespace thinwire::testing
