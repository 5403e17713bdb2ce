// EF-mixed against a sort: who is selected, what is sent, what is left.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "feedback/testing/feedback_testing.h"
#include "kernel/vector_moments.h"

namespace thinwire::testing {
namespace {

// Positions of the `k` largest magnitudes that are not zero, equal ones from the lowest up.
std::vector<bool> largest(const Values& values, size_t k) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::abs(values[a]) > std::abs(values[b]); });
  std::vector<bool> is(values.size());
  for (size_t i = 0; i < std::min(k, order.size()); ++i) is[order[i]] = values[order[i]] != 0;
  return is;
}

// Runs `steps` of whatever gradients against the definition.
void expect_definition(const std::string& spec, size_t k, uint64_t steps,
                       const std::function<Values(uint64_t)>& given, const Encode& encode) {
  const size_t count = given(0).size();
  const auto memory = make(spec, count);
  Values e(count);
  for (uint64_t number = 0; number < steps; ++number) {
    const Values g = given(number);
    const auto fresh = largest(g, k - k / 2), old = largest(e, k / 2);
    Values want(count), left(count);
    for (size_t i = 0; i < count; ++i) {
      want[i] = (fresh[i] ? g[i] : 0.0f) + (old[i] ? e[i] : 0.0f);
      left[i] = (fresh[i] ? 0.0f : g[i]) + (old[i] ? 0.0f : e[i]);
    }
    const Step made = step(*memory, g, number, encode);
    ASSERT_EQ(made.values, want) << number;
    for (size_t i = 0; i < count; ++i) e[i] = left[i] + made.rest[i];
    ASSERT_EQ(saved(*memory, "residual", count), e) << number;
    EXPECT_LE(std::count_if(want.begin(), want.end(), [](float x) { return x != 0; }),
              static_cast<std::ptrdiff_t>(k));
  }
}

TEST(EfMixed, IsItsDefinition) {
  const auto normal = [](uint64_t number) { return gradient(number); };
  expect_definition("efmixed", 1001, 6, normal, send_all);
  expect_definition("efmixed", 1001, 6, normal, send_some);
  expect_definition("efmixed:density=0.0111", 111, 4, normal, send_all);
  expect_definition("efmixed:density=1", kCount, 4, normal, send_some);
}

// Where the selection starts from a sample.
TEST(EfMixed, IsItsDefinitionForLargeVectors) {
  constexpr size_t kLarge = 200'003;
  const auto normal = [](uint64_t number) { return gradient(number, 0, kLarge); };
  expect_definition("efmixed:density=0.01", 2000, 3, normal, send_some);
}

TEST(EfMixed, TiesGoToTheLowestPositionAndZerosAreNotSent) {
  const auto few_values = [](uint64_t number) {
    Values g(1000);
    for (size_t i = 0; i < g.size(); ++i)
      g[i] = static_cast<float>(static_cast<int>((i * 31 + number * 7) % 5) - 2);
    return g;
  };
  expect_definition("efmixed:density=0.3", 300, 6, few_values, send_all);
  const auto few_nonzero = [](uint64_t number) {
    Values g(1000);
    for (size_t i = number; i < g.size(); i += 100) g[i] = 1;
    return g;
  };
  expect_definition("efmixed:density=0.3", 300, 6, few_nonzero, send_all);
}

TEST(EfMixed, AtLeastOneValueOfTheGradientIsSent) {
  for (const size_t count : {1, 2, 3})
    expect_definition(
        "efmixed:density=0.000001", 1, 3,
        [&](uint64_t number) { return gradient(number, 0, count); }, send_all);
}

// A residual that has grown large does not displace the gradient.
TEST(EfMixed, BothHaveTheirShare) {
  const auto memory = make("efmixed:density=0.5", 8);
  step(*memory, Values(8, 100.0f), 0, [](std::span<float>, uint64_t) {});  // all is left
  const Values g = {0, 0, 0, 0, 4, 3, 2, 1};
  const Values sent = step(*memory, g, 1, send_all).sent;
  EXPECT_EQ(sent, (Values{100, 100, 0, 0, 4, 3, 0, 0}));
  EXPECT_EQ(saved(*memory, "residual", 8), (Values{0, 0, 100, 100, 100, 100, 102, 101}));
}

TEST(EfMixed, SentAndKeptAddUpToWhatWasGiven) {
  const auto memory = make("efmixed");
  std::vector<double> owed(kCount);
  for (uint64_t number = 0; number < 5; ++number) {
    const Values g = gradient(number);
    const Step made = step(*memory, g, number);
    for (size_t i = 0; i < kCount; ++i) owed[i] += double{g[i]} - made.sent[i];
  }
  const Values kept = saved(*memory, "residual");
  for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(kept[i], owed[i], 5e-6) << i;
}

}  // namespace
}  // namespace thinwire::testing
