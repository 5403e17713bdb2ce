// The memory `ahead` against the loop of its definition, and what every gradient counts in the end.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "feedback/testing/feedback_testing.h"
#include "kernel/vector_moments.h"

namespace thinwire::testing {
namespace {

struct Case {
  const char* name;
  const char* spec;
  Momentum momentum;
  double clip = 0;
};

const Case kCases[] = {
    {"plain", "ahead", {.momentum = 0.9}},
    {"nesterov", "ahead:nesterov=true", {.momentum = 0.9, .nesterov = true}},
    {"dampened", "ahead:momentum=0.8,dampening=0.25", {.momentum = 0.8, .dampening = 0.25}},
    {"clipped", "ahead:clip=50", {.momentum = 0.9}, 50},
    {"longEnough", "ahead:clip=1000", {.momentum = 0.9}, 1000},
    {"clippedNesterov",
     "ahead:clip=50,momentum=0.8,nesterov=true",
     {.momentum = 0.8, .nesterov = true},
     50}};

float tail_of(const Momentum& rule) {
  return static_cast<float>((rule.nesterov ? rule.momentum : 1) * rule.momentum /
                            (1 - rule.momentum));
}

// Of one rank, by a loop in double. Norms are about 95.
float factor_of(const Values& g, double clip) {
  double square = 0;
  for (const float value : g) square += double{value} * value;
  const double norm = std::sqrt(square);
  return clip > 0 && norm > clip ? static_cast<float>(clip / norm) : 1.0f;
}

// One value, in the order of the definition.
struct Value {
  float u = 0, v = 0, f = 0, signal = 0;

  void add(const Momentum& rule, bool first, float g, float factor = 1) {
    const auto m = static_cast<float>(rule.momentum);
    const float scale = factor * (first ? 1.0f : static_cast<float>(1 - rule.dampening));
    const float own = scale * g;
    const float old = m * u;
    u = old + own;
    const float later = m * u;
    const float now = rule.nesterov ? own + later : u;
    v = v + now;
    f = v == 0 ? 1.0f : std::min(std::max(now / v, 0.0f), 1.0f);
    const float share = (1 - f) * tail_of(rule);
    const float taken = share * u;
    signal = v + taken;
  }
  void settle(float rest) {
    if (rest == signal) return;
    v = rest;
    u = f * u;
  }
};

class AheadMemory : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Options, AheadMemory, ::testing::ValuesIn(kCases),
                         [](const auto& row) { return row.param.name; });

TEST_P(AheadMemory, IsItsDefinition) {
  const auto memory = make(GetParam().spec);
  std::vector<Value> values(kCount);
  Values want(kCount), u(kCount), v(kCount);
  for (uint64_t number = 0; number < 6; ++number) {
    const Values g = gradient(number);
    const float factor = factor_of(g, GetParam().clip);
    EXPECT_EQ(factor < 1, GetParam().clip == 50);
    for (size_t i = 0; i < kCount; ++i) {
      values[i].add(GetParam().momentum, number == 0, g[i], factor);
      want[i] = values[i].signal;
    }
    const Step made = step(*memory, g, number);
    expect_same_bits(made.values, want);
    for (size_t i = 0; i < kCount; ++i) {
      values[i].settle(made.rest[i]);
      u[i] = values[i].u;
      v[i] = values[i].v;
    }
    expect_same_bits(saved(*memory, "velocity"), u);
    expect_same_bits(saved(*memory, "residual"), v);
  }
}

// What was sent, what waits and what the velocity will still add, together.
TEST_P(AheadMemory, EveryGradientCountsAsOftenAsWithMomentumAtTheOptimiser) {
  const auto memory = make(GetParam().spec);
  const Momentum& rule = GetParam().momentum;
  std::vector<double> sent(kCount), given(kCount);
  for (uint64_t number = 0; number < 20; ++number) {
    const Values g = gradient(number);
    const double factor = factor_of(g, GetParam().clip);
    const Step made = step(*memory, g, number);
    for (size_t i = 0; i < kCount; ++i) {
      sent[i] += made.sent[i];
      given[i] += factor * (number == 0 ? 1 : 1 - rule.dampening) * g[i] / (1 - rule.momentum);
    }
  }
  const Values u = saved(*memory, "velocity"), v = saved(*memory, "residual");
  for (size_t i = 0; i < kCount; ++i)
    ASSERT_NEAR(sent[i] + v[i] + double{tail_of(rule)} * u[i], given[i], 1e-3) << i;
}

TEST_P(AheadMemory, IsMomentumWhereNothingWaits) {
  const auto memory = make(GetParam().spec);
  const Momentum& rule = GetParam().momentum;
  const auto m = static_cast<float>(rule.momentum);
  Values u(kCount), want(kCount);
  for (uint64_t number = 0; number < 4; ++number) {
    const Values g = gradient(number);
    const float factor = factor_of(g, GetParam().clip);
    for (size_t i = 0; i < kCount; ++i) {
      const float share = factor * (number == 0 ? 1.0f : static_cast<float>(1 - rule.dampening));
      const float own = share * g[i];
      const float old = m * u[i];
      u[i] = old + own;
      const float later = m * u[i];
      want[i] = rule.nesterov ? own + later : u[i];
    }
    expect_same_bits(step(*memory, g, number, send_all).values, want);
    expect_same_bits(saved(*memory, "velocity"), u);
  }
}

TEST(Ahead, WantsFewPositions) { EXPECT_EQ(make("ahead", 320)->most_positions(), 10u); }

// As `dgc` does, at a limit that depends on the number of ranks; the rest of the memory is as ever.
TEST(Ahead, ClipsEachRanksGradientBeforeItIsAccumulated) {
  const Values g(16, 1.0f);  // a norm of 4
  for (const auto& [clip, ranks, want] :
       {std::tuple("2", uint64_t{1}, 0.5f), {"2", 4, 0.25f}, {"4", 1, 1.0f}, {"0", 16, 1.0f}}) {
    const auto of = [&](const std::string& memory) {
      return make(memory + ":clip=" + clip, 16)->prepare(g, {.ranks = ranks}).values[0];
    };
    EXPECT_EQ(of("ahead"), want);
    EXPECT_EQ(of("dgc"), want);
  }
  const auto memory = make("ahead:clip=2,momentum=0", 16);
  for (uint64_t number = 0; number < 6; ++number)
    step(*memory, g, number, [](std::span<float>, uint64_t) {});
  EXPECT_EQ(saved(*memory, "residual", 16), Values(16, 3.0f));  // what waits is not clipped
  Values bad = g;
  bad[3] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(make("ahead:clip=1", 16)->prepare(bad, {}).moments->finite);
}

// One state with and without: clipping may begin and end in mid-run.
TEST(Ahead, ClippingIsNoPartOfTheState) {
  const auto clipped = make("ahead:clip=50"), plain = make("ahead");
  step(*clipped, gradient(0), 0);
  ASSERT_TRUE(plain->load(clipped->save()).is_ok());
  expect_same_state(plain->save(), clipped->save());
}

// A value that waits a hundred steps takes nearly all of its momentum along.
TEST(Ahead, LeavesLittleVelocityToWhatWaitedLong) {
  const auto memory = make("ahead", 2);
  const Values g = {1, 1};
  for (uint64_t number = 0; number < 100; ++number)
    step(*memory, g, number, [&](std::span<float> rest, uint64_t) {
      rest[1] = 0;
      if (number == 99) rest[0] = 0;
    });
  const Values u = saved(*memory, "velocity", 2);
  EXPECT_LT(u[0], 0.2f);
  EXPECT_GT(u[1], 9.9f);
}

// Memories use the memory of signals in turn, but not at the same time.
TEST(Ahead, SignalsUnderWayDoNotMeet) {
  const auto one = make("ahead"), other = make("ahead"), alone = make("ahead");
  for (uint64_t number = 0; number < 3; ++number) {
    const Values g = gradient(number);
    step(*alone, g, number);
    const Signal first = one->prepare(g, {.step = number});
    const Values before = floats(first.values);
    const Signal second = other->prepare(gradient(number + 10), {.step = number});
    EXPECT_NE(first.values.data(), second.values.data());
    expect_same_bits(first.values, before);
    for (Feedback* memory : {other.get(), one.get()}) {
      send_some(memory->rest(), number);
      memory->sent(g, 0, kCount);
      memory->commit();
    }
    expect_same_state(one->save(), alone->save());
  }
}

TEST(Ahead, IsSentOnce) {
  const auto memory = make("ahead");
  const Values g = gradient(0);
  memory->prepare(g, {});
  memory->sent(g, 0, kCount);
  EXPECT_THROW(memory->sent(g, 0, 1), Error);
  EXPECT_THROW(memory->sent_at(g, {}), Error);
  memory->sent(g, kCount, 0);
  memory->commit();
}

TEST(Ahead, SaysWhatIsLeftOfThePartsThatWereSent) {
  const auto memory = make("ahead");
  constexpr size_t kHalf = kCount / 2;
  for (uint64_t number = 0; number < 3; ++number) {
    const Values g = gradient(number);
    memory->prepare(g, {.step = number});
    send_some(memory->rest(), number);
    memory->sent(g, kHalf, kCount - kHalf);
    const Values second = floats(memory->left().subspan(kHalf));
    memory->sent(g, 0, kHalf);
    const Values first = floats(memory->left().first(kHalf));
    memory->commit();
    const Values kept = saved(*memory, "residual");
    expect_same_bits(first, std::span(kept).first(kHalf));
    expect_same_bits(second, std::span(kept).subspan(kHalf));
  }
}

TEST(Ahead, TensorsHaveMomentaOfTheirOwn) {
  const auto memory = make_feedback("ahead", several_tensors()).value();
  std::vector<Value> values(kCount);
  Values want(kCount);
  for (uint64_t number = 0; number < 5; ++number) {
    const std::vector<Momentum> momenta = momenta_in(number);
    memory->set_momentum(momenta);
    const Values g = gradient(number);
    size_t i = 0;
    for (size_t t = 0; t < kTensorCounts.size(); ++t)
      for (const size_t end = i + kTensorCounts[t]; i < end; ++i) {
        values[i].add(momenta[t], number == 0, g[i]);
        want[i] = values[i].signal;
      }
    const Signal signal = memory->prepare(g, {.step = number});
    EXPECT_EQ(signal.moments->square_sum, kernel::moments(signal.values).square_sum);
    memory->rollback();
    const Step made = step(*memory, g, number);
    expect_same_bits(made.values, want);
    for (i = 0; i < kCount; ++i) values[i].settle(made.rest[i]);
  }
  EXPECT_THROW(memory->set_momentum({}), Error);
}

}  // namespace
}  // namespace thinwire::testing
