// none and residual: what they send and what they keep.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "feedback/testing/feedback_testing.h"

namespace thinwire::testing {
namespace {

TEST(None, SendsTheGradientAndKeepsNothing) {
  const auto none = make("none");
  const auto g = gradient(0);
  for (int number = 0; number < 2; ++number) {
    const Signal signal = none->prepare(g, {});
    EXPECT_EQ(signal.values.data(), g.data());
    EXPECT_EQ(signal.values.size(), g.size());
    EXPECT_TRUE(none->rest().empty());
    none->commit();
  }
  EXPECT_TRUE(none->save().empty());
}

TEST(Residual, AddsWhatWasLeft) {
  const auto residual = make("residual");
  Values left(kCount);
  for (uint64_t number = 0; number < 4; ++number) {
    const Values g = gradient(number);
    Values want(kCount);
    for (size_t i = 0; i < kCount; ++i) want[i] = g[i] + left[i];
    const Signal signal = residual->prepare(g, {});
    EXPECT_EQ(signal.fresh.data(), g.data());
    EXPECT_EQ(signal.values.data(), residual->rest().data());
    residual->rollback();
    const Step made = step(*residual, g, number);
    expect_same_bits(made.values, want);
    expect_same_bits(saved(*residual, "residual"), made.rest);
    left = made.rest;
  }
}

TEST(Residual, WeighsBothParts) {
  const auto residual = make("residual:beta=0.7,gamma=0.3");
  Values left(kCount);
  for (uint64_t number = 0; number < 4; ++number) {
    const Values g = gradient(number);
    Values want(kCount), own(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      own[i] = 0.3f * g[i];
      const float old = 0.7f * left[i];
      want[i] = old + own[i];
    }
    expect_same_bits(residual->prepare(g, {}).fresh, own);
    residual->rollback();
    const Step made = step(*residual, g, number);
    expect_same_bits(made.values, want);
    left = made.rest;
  }
}

// Sums of what was given: nothing is lost, and with beta below 1 something is.
TEST(Residual, SentAndKeptAddUpToWhatWasGiven) {
  for (const std::string spec : {"residual", "residual:gamma=0.5", "residual:beta=0.9"}) {
    const auto residual = make(spec);
    std::vector<double> owed(kCount);
    const double gamma = spec == "residual:gamma=0.5" ? 0.5 : 1;
    for (uint64_t number = 0; number < 5; ++number) {
      const Values g = gradient(number);
      const Step made = step(*residual, g, number);
      for (size_t i = 0; i < kCount; ++i) owed[i] += gamma * g[i] - made.sent[i];
    }
    const Values kept = saved(*residual, "residual");
    double largest = 0;
    for (size_t i = 0; i < kCount; ++i) largest = std::max(largest, std::abs(owed[i] - kept[i]));
    if (spec == "residual:beta=0.9")
      EXPECT_GT(largest, 0.01);
    else
      EXPECT_LT(largest, 5e-6) << spec;  // a few roundings of values up to 20
  }
}

}  // namespace
}  // namespace thinwire::testing
