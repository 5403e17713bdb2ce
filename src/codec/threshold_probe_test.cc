// Tests of ThresholdProbe: its answers do not depend on earlier questions.
// SPDX-License-Identifier: Apache-2.0
#include "codec/threshold_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "codec/testing/sparsifier_testing.h"
#include "kernel/select.h"
#include "kernel/vector_moments.h"

namespace thinwire::testing {
namespace {

constexpr size_t kCount = 30'011;

void expect_count(ThresholdProbe& probe, std::span<const float> values, float threshold,
                  size_t enough) {
  const size_t want = kernel::count_above(values, threshold);
  const size_t got = probe.count(threshold);
  if (want <= enough) {
    EXPECT_EQ(got, want) << threshold;
  } else {
    EXPECT_GT(got, enough) << threshold;
  }
}

// Vectors of changing size, so that hints are too low, too high and right.
TEST(ThresholdProbe, AnswersDoNotDependOnWhatWasAskedBefore) {
  ThresholdProbe probe;
  for (uint64_t round = 0; round < 200; ++round) {
    const RandomKey key{.seed = 4, .step = round};
    const float scale = std::exp2(std::round(6 * random_normal(key, 0)) / 2);
    auto values = draw(laplace, round % 3, kCount);
    for (float& value : values) value *= scale;
    const size_t enough = random_below(key, 1, kCount);
    if (round % 2 == 0) {
      probe.begin(values, enough);
    } else {
      EXPECT_EQ(probe.begin_with_sum(values, enough), kernel::value_sum(values));
    }
    const auto threshold = [&](uint64_t i) { return 8 * scale * random_unit(key, 10 + i); };
    for (uint64_t i = 0; i < round % 5; ++i) expect_count(probe, values, threshold(i), enough);

    ExceedanceList want;
    std::vector<float> rest(kCount), want_rest(kCount);
    const size_t most = 1 + random_below(key, 2, kCount / 4);
    probe.take(threshold(9), most, rest);
    want.select(values, threshold(9), most, want_rest);
    ASSERT_EQ(probe.list().size(), want.size()) << round;
    EXPECT_TRUE(std::equal(want.positions().begin(), want.positions().end(),
                           probe.list().positions().begin()));
    EXPECT_EQ(rest, want_rest);
  }
}

TEST(ThresholdProbe, NothingAndEverything) {
  ThresholdProbe probe;
  const std::vector<float> zeros(kCount), ones(kCount, 1.0f);
  for (int round = 0; round < 2; ++round) {
    probe.begin(zeros, 10);
    EXPECT_EQ(probe.count(0), 0u);
    probe.take(0, 10, {});
    EXPECT_EQ(probe.list().size(), 0u);
    probe.begin(ones, 10);
    EXPECT_GT(probe.count(0.5f), 10u);
    EXPECT_EQ(probe.count(1), 0u);
    probe.take(0.5f, 10, {});
    EXPECT_EQ(probe.list().size(), 10u);
  }
}

}  // namespace
}  // namespace thinwire::testing
