// velocity against the loop of torch's SGD.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "feedback/testing/feedback_testing.h"
#include "kernel/vector_moments.h"

namespace thinwire::testing {
namespace {

// What torch's SGD steps along, for one value.
float direction(const Momentum& rule, bool first, float g, float& u) {
  const auto m = static_cast<float>(rule.momentum);
  const float own = (first ? 1.0f : static_cast<float>(1 - rule.dampening)) * g;
  const float old = m * u;
  u = old + own;
  const float ahead = m * u;
  return rule.nesterov ? own + ahead : u;
}

void expect_definition(std::string_view spec, const Momentum& rule) {
  const auto memory = make(spec);
  Values u(kCount), want(kCount);
  for (uint64_t number = 0; number < 5; ++number) {
    const Values g = gradient(number);
    for (size_t i = 0; i < kCount; ++i) want[i] = direction(rule, number == 0, g[i], u[i]);
    expect_same_bits(step(*memory, g, number).values, want);
    expect_same_bits(saved(*memory, "velocity"), u);
  }
}

TEST(Velocity, IsTheMomentumOfSgd) {
  expect_definition("velocity", {.momentum = 0.9});
  expect_definition("velocity:momentum=0.7,dampening=0.25", {.momentum = 0.7, .dampening = 0.25});
  expect_definition("velocity:nesterov=true", {.momentum = 0.9, .nesterov = true});
  expect_definition("velocity:nesterov=true,dampening=0.25",
                    {.momentum = 0.9, .dampening = 0.25, .nesterov = true});
}

TEST(Velocity, TensorsHaveMomentaOfTheirOwn) {
  const StreamSpec stream{.name = "all",
                          .tensors = {{.name = "a", .shape = {4000}},
                                      {.name = "b", .shape = {6000}},
                                      {.name = "c", .shape = {7}}}};
  const std::vector<Momentum> momenta = {
      {.momentum = 0.9}, {.momentum = 0.5, .nesterov = true}, {.momentum = 0.5, .dampening = 0.5}};
  const auto memory = make_feedback("velocity", stream).value();
  memory->set_momentum(momenta);
  Values u(kCount), want(kCount);
  for (uint64_t number = 0; number < 4; ++number) {
    const Values g = gradient(number);
    for (size_t i = 0; i < kCount; ++i)
      want[i] = direction(momenta[i < 4000 ? 0 : i < 10000 ? 1 : 2], number == 0, g[i], u[i]);
    const Signal signal = memory->prepare(g, {});
    EXPECT_EQ(signal.moments->square_sum, kernel::moments(signal.values).square_sum);
    memory->rollback();
    expect_same_bits(step(*memory, g, number).values, want);
  }
}

TEST(Velocity, WithoutMomentumNoMemoryDampens) {
  for (const std::string name : {"velocity", "dgc", "ahead"}) {
    const auto memory = make(name + ":momentum=0,dampening=0.5");
    for (uint64_t number = 0; number < 3; ++number) {
      const Values g = gradient(number);
      expect_same_bits(step(*memory, g, number, send_all).values, g);
    }
  }
}

TEST(Velocity, KeepsNothingOfWhatWasNotSent) { EXPECT_TRUE(make("velocity")->rest().empty()); }

}  // namespace
}  // namespace thinwire::testing
