// What the later streams of a step have, by the shares of earlier steps.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/step_forecast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace thinwire::testing {
namespace {

// A forecast after one step, in which streams 0, 1 and 2 had 20, 30 and 50 values above.
StepForecast after_a_step() {
  StepForecast forecast;
  forecast.see(0, 20);
  forecast.see(1, 30);
  forecast.see(2, 50);
  forecast.average(0.25);
  return forecast;
}

TEST(StepForecast, KnowsNothingBeforeAStepIsOver) {
  StepForecast forecast;
  EXPECT_FALSE(forecast.to_come(100));
  forecast.see(3, 10);
  EXPECT_FALSE(forecast.to_come(100));
  EXPECT_EQ(forecast.seen(), 10);
  forecast.forget();
  EXPECT_EQ(forecast.seen(), 0);
  EXPECT_FALSE(forecast.to_come(100));
  EXPECT_TRUE(forecast.shares().empty());
  forecast.average(0.25);  // of a step in which nothing was above
  EXPECT_FALSE(forecast.to_come(100));
}

TEST(StepForecast, AUsualStepGoesOnAsUsual) {
  StepForecast forecast = after_a_step();
  EXPECT_DOUBLE_EQ(*forecast.to_come(100), 100);
  EXPECT_DOUBLE_EQ(*forecast.to_come(300), 300);
  forecast.see(0, 20);
  EXPECT_DOUBLE_EQ(*forecast.to_come(100), 80);
  forecast.see(2, 50);
  EXPECT_DOUBLE_EQ(*forecast.to_come(100), 30);
  forecast.see(1, 30);
  EXPECT_NEAR(*forecast.to_come(100), 0, 1e-12);
}

// A tenth of a usual step stands beside what was seen.
TEST(StepForecast, MoreThanUsualMeansMoreToCome) {
  StepForecast forecast = after_a_step();
  forecast.see(0, 40);
  EXPECT_DOUBLE_EQ(*forecast.to_come(100), 80 * (0.4 + 0.1) / (0.2 + 0.1));
  forecast.see(2, 100);
  EXPECT_DOUBLE_EQ(*forecast.to_come(100), 30 * (1.4 + 0.1) / (0.7 + 0.1));
}

TEST(StepForecast, AveragesSharesAndNotCounts) {
  StepForecast forecast = after_a_step();
  forecast.see(0, 700);  // seven tenths, in place of two
  forecast.see(1, 300);  // and stream 2 is not there
  forecast.average(0.25);
  const std::vector<double> expected = {0.2 + 0.25 * 0.5, 0.3, 0.5 - 0.25 * 0.5};
  ASSERT_EQ(forecast.shares().size(), 3);
  for (size_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(forecast.shares()[i], expected[i]) << i;
}

TEST(StepForecast, AStepThatIsForgottenLeavesNoTrace) {
  StepForecast forecast = after_a_step();
  forecast.see(5, 1000);
  forecast.see(0, 1000);
  forecast.forget();
  EXPECT_EQ(forecast.shares().size(), 3);
  EXPECT_DOUBLE_EQ(*forecast.to_come(100), 100);
}

// Most of many streams have none above in a step, and another time they have.
TEST(StepForecast, StreamsThatHadNoneCountLikeOthers) {
  StepForecast forecast;
  for (size_t i = 0; i < 1000; ++i) forecast.see(i, i % 10 == 3 ? 1 : 0);
  forecast.average(0.25);
  for (size_t i = 0; i < 500; ++i) forecast.see(i, i % 10 == 7 ? 1 : 0);
  EXPECT_NEAR(*forecast.to_come(100), 50, 1e-9);
}

TEST(StepForecast, OldSharesEndAtZero) {
  StepForecast forecast = after_a_step();
  for (int step = 0; step < 100; ++step) {
    forecast.see(0, 20);
    forecast.average(0.25);
  }
  EXPECT_EQ(forecast.shares()[1], 0);
  EXPECT_EQ(forecast.shares()[2], 0);
  EXPECT_NEAR(forecast.shares()[0], 1, 1e-9);
}

TEST(StepForecast, GoesOnFromSavedShares) {
  StepForecast forecast = after_a_step(), resumed;
  resumed.set_shares(forecast.shares());
  for (StepForecast* one : {&forecast, &resumed}) one->see(1, 45);
  EXPECT_EQ(resumed.to_come(100), forecast.to_come(100));
}

}  // namespace
}  // namespace thinwire::testing
