// Quantiles of a sketch beside those of sorted magnitudes; averages; states.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/magnitude_sketch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "codec/testing/sparsifier_testing.h"

namespace thinwire::testing {
namespace {

size_t above(const std::vector<float>& values, float threshold) {
  return static_cast<size_t>(std::count_if(
      values.begin(), values.end(), [&](float value) { return std::abs(value) > threshold; }));
}

TEST(MagnitudeSketch, FindsTheMagnitudeThatSoManyExceed) {
  for (const auto law : {laplace, normal, student3}) {
    const std::vector<float> values = draw(law, 0, 100000);
    MagnitudeSketch sketch;
    EXPECT_TRUE(sketch.empty());
    sketch.count(values, 1);
    sketch.average(1);
    for (const double target : {50000.0, 10000.0, 1000.0, 100.0}) {
      const auto threshold = sketch.exceeded_by(target);
      ASSERT_TRUE(threshold);
      EXPECT_NEAR(static_cast<double>(above(values, *threshold)), target, 0.05 * target + 2);
      for (const double least : {1.0, target / 4, target})
        EXPECT_EQ(sketch.exceeded_by(target, sketch.start_for(least)), threshold) << least;
    }
  }
}

TEST(MagnitudeSketch, ZerosAreNoMagnitudes) {
  MagnitudeSketch sketch;
  sketch.count(std::vector<float>{0.0f, -0.0f, 1.0f, -2.0f, 0.0f}, 1);
  sketch.average(1);
  const auto both = sketch.exceeded_by(2), one = sketch.exceeded_by(1);
  ASSERT_TRUE(both && one);
  EXPECT_LE(*both, 1.0f);
  EXPECT_GT(*both, 0.0f);
  EXPECT_GE(*one, 1.0f);
  EXPECT_LE(*one, 2.0f);
  EXPECT_FALSE(sketch.exceeded_by(3));
}

TEST(MagnitudeSketch, TheLargestFloatsHaveFiniteThresholds) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  MagnitudeSketch sketch;
  sketch.count(std::vector<float>{kLargest, -kLargest}, 1);
  sketch.average(1);
  const auto threshold = sketch.exceeded_by(0.5);
  ASSERT_TRUE(threshold);
  EXPECT_TRUE(std::isfinite(*threshold));
}

TEST(MagnitudeSketch, AveragesStepsAndForgetsThoseThatNeverHappened) {
  const std::vector<float> ones(64, 1.0f), fours(64, 4.0f);
  MagnitudeSketch sketch;
  sketch.count(ones, 1);
  sketch.average(0.25f);  // the first step is all that is known
  EXPECT_LT(*sketch.exceeded_by(64), 1.1f);
  sketch.count(fours, 1);
  sketch.forget();
  EXPECT_LT(*sketch.exceeded_by(1), 1.1f);
  sketch.count(fours, 1);
  sketch.average(0.25f);  // 16 of 64
  EXPECT_GE(*sketch.exceeded_by(15), 4.0f);
  EXPECT_LT(*sketch.exceeded_by(17), 1.1f);
  sketch.count(fours, 1);
  sketch.average(1);
  EXPECT_GE(*sketch.exceeded_by(63), 4.0f);
}

// A value counts for the stretch that it was sampled from.
TEST(MagnitudeSketch, SamplesStandForMoreThanThemselves) {
  MagnitudeSketch sketch;
  sketch.count(std::vector<float>(10, 1.0f), 100);
  sketch.count(std::vector<float>(7, 8.0f), 1);
  sketch.average(1);
  EXPECT_GE(*sketch.exceeded_by(7), 8.0f);
  EXPECT_LT(*sketch.exceeded_by(8), 1.1f);
  EXPECT_TRUE(sketch.exceeded_by(1007));
  EXPECT_FALSE(sketch.exceeded_by(1008));
}

// Halved again and again, a count ends at zero: denormals would make every later step slow.
TEST(MagnitudeSketch, OldCountsEndAtZero) {
  MagnitudeSketch sketch;
  sketch.count(std::vector<float>{1.0f}, 1);
  sketch.average(1);
  for (int step = 0; step < 60; ++step) {
    sketch.count(std::vector<float>{2.0f}, 1);
    sketch.average(0.25f);
  }
  EXPECT_EQ(
      std::count_if(sketch.bins().begin(), sketch.bins().end(), [](float bin) { return bin != 0; }),
      1);
}

TEST(MagnitudeSketch, GoesOnFromItsBins) {
  MagnitudeSketch sketch, other;
  sketch.count(draw(laplace, 3, 5000), 1);
  sketch.average(1);
  other.count(draw(laplace, 4, 3000), 1);  // which is forgotten
  other.set_bins(sketch.bins());
  EXPECT_FALSE(other.empty());
  EXPECT_EQ(other.exceeded_by(50), sketch.exceeded_by(50));
  const std::vector<float> more = draw(laplace, 5, 5000);
  for (MagnitudeSketch* one : {&sketch, &other}) {
    one->count(more, 1);
    one->average(0.5f);
  }
  EXPECT_EQ(other.exceeded_by(50), sketch.exceeded_by(50));
  other.set_bins(std::vector<float>(MagnitudeSketch::kBins));
  EXPECT_TRUE(other.empty());
}

}  // namespace
}  // namespace thinwire::testing
