// Groups against plain sums over the same steps, and their bound.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/step_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace thinwire::cli {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::json;

StepGroups ramp(size_t steps, size_t most) {
  StepGroups groups(most);
  for (size_t i = 1; i <= steps; ++i) {
    groups.begin_step();
    groups.add("ramp", static_cast<double>(i));
  }
  return groups;
}

TEST(StepGroups, AShortRunIsShownStepByStep) {
  const StepGroups groups = ramp(4, 2);
  EXPECT_EQ(groups.steps(), 4u);
  EXPECT_EQ(groups.means("ramp"), Json({1, 2, 3, 4}));
  EXPECT_EQ(groups.means("unknown"), Json({nullptr, nullptr, nullptr, nullptr}));
}

TEST(StepGroups, NeighboursBecomeOneWhenThereAreTooMany) {
  const StepGroups groups = ramp(7, 2);
  EXPECT_EQ(groups.groups(), 4u);
  EXPECT_EQ(groups.means("ramp"), Json({1.5, 3.5, 5.5, 7}));
  EXPECT_EQ(groups.least("ramp"), Json({1, 3, 5, 7}));
  EXPECT_EQ(groups.largest("ramp"), Json({2, 4, 6, 7}));
  EXPECT_EQ(groups.last("ramp"), Json({2, 4, 6, 7}));
}

TEST(StepGroups, TheNumberOfGroupsIsBoundedAndTheirSumsAreThoseOfTheSteps) {
  for (const size_t steps : {1u, 19u, 20u, 21u, 40u, 41u, 1000u, 100'003u}) {
    const StepGroups groups = ramp(steps, 10);
    EXPECT_LE(groups.groups(), 20u) << steps;
    EXPECT_GE(groups.groups(), std::min<size_t>(steps, 10)) << steps;
    EXPECT_EQ(groups.last("ramp").back(), rounded(static_cast<double>(steps)));
    EXPECT_EQ(groups.least("ramp").front(), 1);
  }
}

TEST(StepGroups, GroupsAreMergedUntilTheyAreFewEnough) {
  StepGroups groups = ramp(7, 8);
  groups.merge_to(7);
  EXPECT_EQ(groups.groups(), 7u);
  groups.merge_to(3);
  EXPECT_EQ(groups.means("ramp"), Json({2.5, 6}));
  EXPECT_EQ(groups.last("ramp"), Json({4, 7}));
  groups.merge_to(1);
  EXPECT_EQ(groups.means("ramp"), Json({4}));
}

TEST(StepGroups, AColumnThatIsMissingInSomeStepsHasTheMeanOfTheOthers) {
  StepGroups groups(2);
  for (size_t i = 0; i < 8; ++i) {
    groups.begin_step();
    if (i == 2 || i == 3) groups.add("rare", 5);
    groups.add("late", i < 6 ? std::numeric_limits<double>::quiet_NaN() : 1.0);
    groups.add("late", std::numeric_limits<double>::infinity());
  }
  EXPECT_EQ(groups.means("rare"), Json({nullptr, 5, nullptr, nullptr}));
  EXPECT_EQ(groups.means("late"), Json({nullptr, nullptr, nullptr, 1}));
  EXPECT_THAT(groups.columns(), ElementsAre("late", "rare"));
}

TEST(StepGroups, NumbersHaveFiveDigits) {
  EXPECT_EQ(rounded(0.123456789), Json(0.12346));
  EXPECT_EQ(rounded(1234567.0).dump(), "1234600");
  EXPECT_EQ(rounded(-3.0).dump(), "-3");
  EXPECT_TRUE(rounded(std::nan("")).is_null());
}

}  // namespace
}  // namespace thinwire::cli
