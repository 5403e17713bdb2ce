// Momentum correction against the loop of its definition: velocities, masks, clipping.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "feedback/testing/feedback_testing.h"
#include "kernel/vector_moments.h"

namespace thinwire::testing {
namespace {

struct Case {
  const char* name;
  const char* spec;
  Momentum momentum = {.momentum = 0.9};
  bool mask = true;
};

const Case kCases[] = {
    {"plain", "dgc"},
    {"nesterov", "dgc:nesterov=true", {.momentum = 0.9, .nesterov = true}},
    {"dampened", "dgc:momentum=0.8,dampening=0.25", {.momentum = 0.8, .dampening = 0.25}},
    {"unmasked", "dgc:mask=false", {.momentum = 0.9}, false},
    {"unmaskedNesterov",
     "dgc:mask=false,nesterov=true",
     {.momentum = 0.9, .nesterov = true},
     false}};

// u and v after one more gradient, in the order of the definition.
void add(const Momentum& rule, bool first, float g, float& u, float& v) {
  const auto m = static_cast<float>(rule.momentum);
  const float own = (first ? 1.0f : static_cast<float>(1 - rule.dampening)) * g;
  const float old = m * u;
  u = old + own;
  const float ahead = m * u;
  v = rule.nesterov ? (v + own) + ahead : v + u;
}

class Dgc : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Options, Dgc, ::testing::ValuesIn(kCases),
                         [](const auto& row) { return row.param.name; });

TEST_P(Dgc, IsItsDefinition) {
  const auto memory = make(GetParam().spec);
  Values u(kCount), v(kCount);
  for (uint64_t number = 0; number < 6; ++number) {
    const Values g = gradient(number);
    std::vector<double> owed(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      add(GetParam().momentum, number == 0, g[i], u[i], v[i]);
      owed[i] = v[i];
    }
    expect_same_bits(memory->prepare(g, {.step = number}).fresh, u);
    memory->rollback();
    const Step made = step(*memory, g, number);
    expect_same_bits(made.values, v);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(made.sent[i] + double{made.rest[i]}, owed[i], 1e-5) << i;  // nothing is lost
      v[i] = made.rest[i];
      if (made.sent[i] != 0 && GetParam().mask) u[i] = 0;
    }
    expect_same_bits(saved(*memory, "velocity"), u);
    expect_same_bits(saved(*memory, "residual"), v);
  }
}

// A skipped first step is not the first.
TEST_P(Dgc, TheFirstStepIsTheFirstThatCounts) {
  const auto memory = make(GetParam().spec), fresh = make(GetParam().spec);
  memory->prepare(gradient(7), {});
  memory->rollback();
  for (uint64_t number = 0; number < 2; ++number)
    expect_same_bits(step(*memory, gradient(number), number).values,
                     step(*fresh, gradient(number), number).values);
}

// A codec that leaves nothing gives torch's SGD: no velocity is masked.
TEST_P(Dgc, WhatIsSentWholeIsNotMasked) {
  const auto memory = make(GetParam().spec);
  Values u(kCount);
  for (uint64_t number = 0; number < 4; ++number) {
    const Values g = gradient(number);
    Values v(kCount);
    for (size_t i = 0; i < kCount; ++i) add(GetParam().momentum, number == 0, g[i], u[i], v[i]);
    expect_same_bits(step(*memory, g, number, send_all).values, v);
    expect_same_bits(saved(*memory, "velocity"), u);
  }
}

// Each tensor by its own momentum, also one that changes; parts that are sent may begin anywhere.
TEST(Dgc, TensorsHaveMomentaOfTheirOwn) {
  for (const std::string_view spec : {"dgc", "dgc:mask=false"}) {
    const auto memory = make_feedback(spec, several_tensors()).value();
    Values u(kCount), v(kCount);
    for (uint64_t number = 0; number < 5; ++number) {
      const std::vector<Momentum> momenta = momenta_in(number);
      memory->set_momentum(momenta);
      const Values g = gradient(number);
      size_t i = 0;
      for (size_t t = 0; t < kTensorCounts.size(); ++t)
        for (const size_t end = i + kTensorCounts[t]; i < end; ++i)
          add(momenta[t], number == 0, g[i], u[i], v[i]);
      const Signal signal = memory->prepare(g, {.step = number});
      const Moments want = kernel::moments(signal.values);
      EXPECT_EQ(signal.moments->square_sum, want.square_sum);
      memory->rollback();
      const Step made = step(*memory, g, number);
      expect_same_bits(made.values, v);
      for (i = 0; i < kCount; ++i) {
        v[i] = made.rest[i];
        if (made.sent[i] != 0 && spec == "dgc") u[i] = 0;
      }
      expect_same_bits(saved(*memory, "velocity"), u);
    }
    EXPECT_THROW(memory->set_momentum({}), Error);
  }
}

TEST(Dgc, WantsPositionsToMask) {
  EXPECT_EQ(make("dgc", 320)->most_positions(), 20u);
  EXPECT_EQ(make("dgc:mask=false", 320)->most_positions(), 0u);
}

// Nothing is masked where nothing is left, and a step is whole once its positions are there.
TEST(Dgc, PositionsOfAllAreAllThatWasSent) {
  const auto memory = make("dgc", 3), other = make("dgc", 3);
  const Values g = {1, 2, 0};
  memory->prepare(g, {});
  std::fill(memory->rest().begin(), memory->rest().end(), 0.0f);
  memory->sent_at(g, std::vector<uint32_t>{0, 1});
  memory->commit();
  EXPECT_EQ(saved(*memory, "velocity", 3), g);
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

// States of earlier versions hold velocity and residual alone; they knew no dampening.
TEST(Dgc, WhetherThereWasAStepIsSavedWhereItCounts) {
  const auto has_begun = [](const Feedback& memory) {
    const StateArrays arrays = memory.save();
    return std::any_of(arrays.begin(), arrays.end(),
                       [](const StateArray& array) { return array.name == "begun"; });
  };
  const auto plain = make("dgc"), dampened = make("dgc:dampening=0.25");
  EXPECT_FALSE(has_begun(*plain));
  EXPECT_TRUE(has_begun(*dampened));
  EXPECT_TRUE(plain->load(make("dgc")->save()).is_ok());
  EXPECT_FALSE(dampened->load(plain->save()).is_ok());
}

}  // namespace
}  // namespace thinwire::testing
