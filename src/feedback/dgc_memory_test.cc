// Momentum correction against the loop of its definition: velocities, masks, clipping.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "feedback/feedback_testing.h"

namespace thinwire::testing {
namespace {

class Dgc : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Nesterov, Dgc, ::testing::Bool());

TEST_P(Dgc, IsItsDefinition) {
  const bool nesterov = GetParam();
  const auto memory = make(nesterov ? "dgc:nesterov=true" : "dgc");
  Values u(kCount), v(kCount);
  for (uint64_t number = 0; number < 6; ++number) {
    const Values g = gradient(number);
    std::vector<double> owed(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      if (nesterov) {
        u[i] = 0.9f * (u[i] + g[i]);
        owed[i] = double{v[i]} + u[i] + g[i];
        v[i] = (v[i] + u[i]) + g[i];
      } else {
        const float old = 0.9f * u[i];
        u[i] = old + g[i];
        owed[i] = double{v[i]} + u[i];
        v[i] = v[i] + u[i];
      }
    }
    expect_same_bits(memory->prepare(g, {.step = number}).fresh, u);
    memory->rollback();
    const Step made = step(*memory, g, number);
    expect_same_bits(made.values, v);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(made.sent[i] + double{made.rest[i]}, owed[i], 1e-5) << i;  // nothing is lost
      v[i] = made.rest[i];
      if (made.sent[i] != 0) u[i] = 0;
    }
    expect_same_bits(saved(*memory, "velocity"), u);
    expect_same_bits(saved(*memory, "residual"), v);
  }
}

TEST(Dgc, SentPositionsAreForgottenEntirely) {
  const auto memory = make("dgc");
  for (uint64_t number = 0; number < 3; ++number)
    step(*memory, gradient(number), number, [](std::span<float> rest, uint64_t) {
      for (size_t i = 1; i < rest.size(); i += 2) rest[i] = 0;
    });
  const Values u = saved(*memory, "velocity"), v = saved(*memory, "residual"), g = gradient(0);
  for (size_t i = 0; i < kCount; ++i) {
    if (g[i] == 0) continue;
    ASSERT_EQ(u[i] == 0, i % 2 == 1) << i;
    ASSERT_EQ(v[i] == 0, i % 2 == 1) << i;
  }
}

TEST(Dgc, WithoutMomentumIsTheResidualAndSendingAllIsPlain) {
  const auto memory = make("dgc:momentum=0"), residual = make("residual");
  for (uint64_t number = 0; number < 4; ++number) {
    const Values g = gradient(number);
    expect_same_bits(step(*memory, g, number).values, step(*residual, g, number).values);
  }
  const auto plain = make("dgc:momentum=0");
  for (uint64_t number = 0; number < 4; ++number) {
    const Values g = gradient(number);
    expect_same_bits(step(*plain, g, number, send_all).values, g);
  }
}

// Sent nowhere, momentum correction gives the sum of velocities of SGD with momentum.
TEST(Dgc, UnsentItAddsUpTheStepsOfMomentum) {
  const auto memory = make("dgc:momentum=0.5");
  const Values one(kCount, 1.0f);
  for (uint64_t number = 0; number < 3; ++number)
    step(*memory, one, number, [](std::span<float>, uint64_t) {});
  EXPECT_EQ(saved(*memory, "velocity"), Values(kCount, 1.75f));  // 1, 1.5, 1.75
  EXPECT_EQ(saved(*memory, "residual"), Values(kCount, 4.25f));
}

TEST(Dgc, ClipsEachRanksGradientByTheRootOfTheirNumber) {
  const Values g(16, 1.0f);  // a norm of 4
  const auto first_value = [&](std::string_view spec, uint64_t ranks) {
    return make(spec, 16)->prepare(g, {.ranks = ranks}).values[0];
  };
  EXPECT_EQ(first_value("dgc:clip=2", 1), 0.5f);
  EXPECT_EQ(first_value("dgc:clip=2", 4), 0.25f);
  EXPECT_EQ(first_value("dgc:clip=2", 16), 0.125f);
  EXPECT_EQ(first_value("dgc:clip=4", 1), 1.0f);  // long enough
  EXPECT_EQ(first_value("dgc:clip=100", 1), 1.0f);
  EXPECT_EQ(first_value("dgc", 16), 1.0f);
  EXPECT_EQ(first_value("dgc:clip=2,nesterov=true", 4), 0.475f);  // 0.25 x 1.9
}

// Before accumulation: what is remembered is not clipped.
TEST(Dgc, ClipsTheGradientAndNotWhatIsRemembered) {
  const auto memory = make("dgc:clip=2,momentum=0", 16);
  const Values g(16, 1.0f);
  for (uint64_t number = 0; number < 6; ++number)
    step(*memory, g, number, [](std::span<float>, uint64_t) {});
  EXPECT_EQ(saved(*memory, "residual", 16), Values(16, 3.0f));
}

TEST(Dgc, ClippingFindsWhatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Values g = gradient(0);
    g[5000] = bad;
    EXPECT_FALSE(make("dgc:clip=1")->prepare(g, {}).moments->finite);
  }
}

}  // namespace
}  // namespace thinwire::testing
