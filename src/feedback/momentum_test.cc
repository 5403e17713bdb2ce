// momentum against the loop of its definition.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "feedback/testing/feedback_testing.h"

namespace thinwire::testing {
namespace {

TEST(Momentum, IsTheMovingAverage) {
  const auto memory = make("momentum:beta=0.7");
  Values m(kCount);
  for (uint64_t number = 0; number < 5; ++number) {
    const Values g = gradient(number);
    for (size_t i = 0; i < kCount; ++i) {
      const float old = 0.7f * m[i], fresh = static_cast<float>(1 - 0.7) * g[i];
      m[i] = old + fresh;
    }
    expect_same_bits(step(*memory, g, number).values, m);
    expect_same_bits(saved(*memory, "momentum"), m);
  }
}

TEST(Momentum, AtZeroIsTheGradient) {
  const auto memory = make("momentum:beta=0");
  step(*memory, gradient(0), 0);
  expect_same_bits(step(*memory, gradient(1), 1).values, gradient(1));
}

TEST(Momentum, KeepsNothingOfWhatWasNotSent) { EXPECT_TRUE(make("momentum")->rest().empty()); }

}  // namespace
}  // namespace thinwire::testing
