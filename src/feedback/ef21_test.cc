// EF21: estimates on both sides, the identity limit, and convergence under a contraction.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "feedback/testing/feedback_testing.h"

namespace thinwire::testing {
namespace {

TEST(Ef21, IsItsDefinition) {
  const auto memory = make("ef21");
  Values h(kCount), mean(kCount);
  for (uint64_t number = 0; number < 6; ++number) {
    const Values g = gradient(number);
    Values change(kCount);
    for (size_t i = 0; i < kCount; ++i) change[i] = g[i] - h[i];
    const Step made = step(*memory, g, number);
    expect_same_bits(made.values, change);
    for (size_t i = 0; i < kCount; ++i) {
      h[i] += made.sent[i];
      mean[i] += made.sent[i];
    }
    expect_same_bits(saved(*memory, "estimate"), h);
    expect_same_bits(saved(*memory, "mean_estimate"), mean);
    expect_same_bits(made.mean, mean);
  }
}

TEST(Ef21, WithTheIdentityIsGradientDescent) {
  const auto memory = make("ef21");
  for (uint64_t number = 0; number < 20; ++number) {
    const Values g = gradient(number);
    const Step made = step(*memory, g, number, send_all);
    for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(made.mean[i], g[i], 2e-5) << number;
  }
}

TEST(Ef21, AFrozenGradientIsApproachedInEveryStep) {
  const auto memory = make("ef21");
  const Values g = gradient(0);
  double before = INFINITY;
  const Encode halve_some = [](std::span<float> rest, uint64_t number) {
    for (size_t i = number % 3; i < rest.size(); i += 3) rest[i] *= 0.5f;
  };
  for (uint64_t number = 0; number < 40; ++number) {
    const Step made = step(*memory, g, number, halve_some);
    double distance = 0;
    for (size_t i = 0; i < kCount; ++i) distance += std::abs(double{g[i]} - made.mean[i]);
    EXPECT_LT(distance, before) << number;
    before = distance;
  }
  EXPECT_LT(before, 1e-3 * kCount);
}

TEST(Ef21, TheMeanIsThatOfTheEstimates) {
  constexpr uint32_t kRanks = 3;
  std::vector<std::unique_ptr<Feedback>> ranks;
  for (uint32_t r = 0; r < kRanks; ++r) ranks.push_back(make("ef21"));
  for (uint64_t number = 0; number < 10; ++number) {
    Values mean(kCount);
    std::vector<Values> means;
    for (uint32_t r = 0; r < kRanks; ++r) {
      const Values g = gradient(number, r);
      const Values values = floats(ranks[r]->prepare(g, {}).values);
      send_some(ranks[r]->rest(), number + r);
      for (size_t i = 0; i < kCount; ++i)
        mean[i] += (values[i] - ranks[r]->rest()[i]) * (1.0f / kRanks);
      ranks[r]->sent(g, 0, kCount);
    }
    for (const auto& rank : ranks) {
      means.push_back(mean);
      rank->receive(means.back());
      rank->commit();
    }
    for (uint32_t r = 1; r < kRanks; ++r) expect_same_bits(means[r], means[0]);
    std::vector<double> estimates(kCount);
    for (const auto& rank : ranks) {
      const Values own = saved(*rank, "estimate");
      for (size_t i = 0; i < kCount; ++i) estimates[i] += double{own[i]} / kRanks;
    }
    for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(means[0][i], estimates[i], 5e-6) << number;
  }
}

// Not a bit, though the gradient is larger by nine orders of magnitude.
TEST(Ef21, AnEstimateOfWhichNothingIsSentStays) {
  const auto memory = make("ef21", 2);
  step(*memory, {1e-9f, -3e-7f}, 0, send_all);
  const Values before = saved(*memory, "estimate", 2);
  for (uint64_t number = 1; number < 4; ++number)
    step(*memory, {1.7f, 12345.6f}, number, [](std::span<float>, uint64_t) {});
  expect_same_bits(saved(*memory, "estimate", 2), before);
}

}  // namespace
}  // namespace thinwire::testing
