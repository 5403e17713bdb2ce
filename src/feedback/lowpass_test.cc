// lowpass against the loop of its definition, and its limits.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "feedback/testing/feedback_testing.h"

namespace thinwire::testing {
namespace {

TEST(LowPass, TakesInAShareOfWhatWasNotSent) {
  const auto memory = make("lowpass:beta=0.3");
  Values m(kCount);
  for (uint64_t number = 0; number < 5; ++number) {
    const Values g = gradient(number);
    Values p(kCount);
    for (size_t i = 0; i < kCount; ++i) p[i] = g[i] + m[i];
    const Step made = step(*memory, g, number);
    expect_same_bits(made.values, p);
    for (size_t i = 0; i < kCount; ++i) {
      const float old = 0.7f * m[i], left = 0.3f * made.rest[i];
      m[i] = old + left;
    }
    expect_same_bits(saved(*memory, "residual"), m);
  }
}

TEST(LowPass, ClearsWhatWasSentByAShareOnly) {
  const auto memory = make("lowpass:beta=0.25");
  step(*memory, Values(kCount, 8.0f), 0, [](std::span<float>, uint64_t) {});  // sends nothing
  EXPECT_EQ(saved(*memory, "residual"), Values(kCount, 2.0f));
  step(*memory, Values(kCount, 0.0f), 1, send_all);
  EXPECT_EQ(saved(*memory, "residual"), Values(kCount, 1.5f));
}

TEST(LowPass, AtOneIsTheResidual) {
  const auto memory = make("lowpass:beta=1"), residual = make("residual");
  for (uint64_t number = 0; number < 5; ++number) {
    const Values g = gradient(number);
    expect_same_bits(step(*memory, g, number).values, step(*residual, g, number).values);
    expect_same_state(memory->save(), residual->save());
  }
}

TEST(LowPass, ConservesAtOneAndNotBelow) {
  for (const std::string spec : {"lowpass:beta=1", "lowpass:beta=0.9"}) {
    const auto memory = make(spec);
    const Values g = gradient(0);
    const Step made = step(*memory, g, 0);
    const Values kept = saved(*memory, "residual");
    double lost = 0;
    for (size_t i = 0; i < kCount; ++i)
      lost = std::max(lost, std::abs(double{g[i]} - made.sent[i] - kept[i]));
    EXPECT_EQ(lost < 1e-6, spec == "lowpass:beta=1") << lost;
  }
}

}  // namespace
}  // namespace thinwire::testing
