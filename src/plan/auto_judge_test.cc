// Tests of when codec auto looks at the link again, and of what it takes as a step's time.
// SPDX-License-Identifier: Apache-2.0
#include "plan/auto_judge.h"

#include <gtest/gtest.h>

#include "plan/step_watch.h"

namespace thinwire {
namespace {

using Wish = AutoJudge::Wish;

TEST(AutoJudge, TwoOddWindowsInARowAskForAProbe) {
  AutoJudge judge;
  EXPECT_EQ(judge.look(1, 0.5), Wish::kPlan);
  EXPECT_EQ(judge.look(1.1, 0.5), Wish::kNothing);
  EXPECT_EQ(judge.look(1.5, 0.5), Wish::kNothing);
  EXPECT_EQ(judge.look(1, 0.5), Wish::kNothing);
  EXPECT_EQ(judge.look(1.5, 0.5), Wish::kNothing);
  EXPECT_EQ(judge.look(1.5, 0.5), Wish::kProbe);
  EXPECT_EQ(judge.look(1.5, 0.5), Wish::kNothing);  // that is how they are
  EXPECT_EQ(judge.look(1.5, 0.3), Wish::kNothing);
  EXPECT_EQ(judge.look(1.5, 0.3), Wish::kProbe);
  judge.changed();
  EXPECT_EQ(judge.look(9, 0.3), Wish::kPlan);
}

TEST(AutoJudge, OneVeryOddWindowAsksForAProbe) {
  AutoJudge judge;
  judge.look(1, 0.5);
  EXPECT_EQ(judge.look(1.9, 0.5), Wish::kNothing);
  judge.look(1, 0.5);
  EXPECT_EQ(judge.look(2.1, 0.5), Wish::kProbe);
  EXPECT_EQ(judge.look(0.9, 0.5), Wish::kProbe);
  EXPECT_EQ(judge.look(0.9, 0.1), Wish::kNothing);  // arithmetic may be hidden
}

TEST(AutoJudge, TimeAsksForAProbeToo) {
  AutoJudge judge;
  judge.look(1, 1);
  judge.passed(4.9);
  EXPECT_EQ(judge.look(1, 1), Wish::kNothing);
  judge.passed(0.2);
  EXPECT_EQ(judge.look(1, 1), Wish::kProbe);
  EXPECT_NEAR(judge.probe_seconds(), 0.051, 1e-9);  // a hundredth of what passed
  judge.probed();
  EXPECT_EQ(judge.look(1, 1), Wish::kNothing);
}

// A probe of 0.8 s is 1 % of 80 s and 10 % of 8 s. Meanwhile nothing is forgotten.
TEST(AutoJudge, AProbeWaitsUntilItsShareIsWhatItNeeds) {
  AutoJudge judge;
  judge.look(1, 1);
  judge.probed(0.8);
  judge.passed(79.9);
  EXPECT_EQ(judge.look(1, 1), Wish::kNothing);
  judge.passed(0.2);
  EXPECT_EQ(judge.look(1, 1), Wish::kProbe);
  EXPECT_NEAR(judge.probe_seconds(), 0.8, 1e-9);
  judge.probed(0.8);
  judge.passed(7.9);
  EXPECT_EQ(judge.look(2.1, 1), Wish::kNothing);
  judge.passed(0.2);
  EXPECT_EQ(judge.look(2.1, 1), Wish::kProbe);
  EXPECT_NEAR(judge.probe_seconds(), 0.8, 1e-9);
  judge.probed(0.8);
  judge.passed(1000);
  judge.look(1, 1);
  EXPECT_NEAR(judge.probe_seconds(), 0.8, 1e-9);  // and no more
}

TEST(AutoJudge, WhatLosesSomethingMustPromiseMore) {
  EXPECT_EQ(needed_gain(true, false, false), 1.05);
  EXPECT_EQ(needed_gain(true, false, true), 1.05);
  EXPECT_EQ(needed_gain(false, false, false), 1.05);
  EXPECT_EQ(needed_gain(false, false, true), 1.02);
  EXPECT_EQ(needed_gain(false, true, true), 0.98);
}

TEST(StepWatch, TakesMediansWithoutTheFirstSteps) {
  StepWatch watch(2);
  watch.restart(3, 2);
  double clock = 100;
  const auto step = [&](double first, double last, double end) {
    watch.started(1, clock + first);
    if (last > 0) watch.started(0, clock + last);
    watch.ended(clock += end);
  };
  step(5, 5, 50);  // from no known beginning
  step(9, 9, 90);  // unsteady
  step(8, 8, 80);
  EXPECT_FALSE(watch.is_full());
  step(1, 2, 10);
  step(3, 0, 12);  // tensor 0 is not started
  EXPECT_FALSE(watch.is_full());
  step(2, 4, 30);
  ASSERT_TRUE(watch.is_full());
  const WatchedStep found = watch.medians();
  EXPECT_DOUBLE_EQ(found.step, 12);
  EXPECT_DOUBLE_EQ(found.ready[0], 3);  // of 2, 3 and 4
  EXPECT_DOUBLE_EQ(found.ready[1], 2);
  watch.restart(1, 0);
  EXPECT_FALSE(watch.is_full());
}

}  // namespace
}  // namespace thinwire
