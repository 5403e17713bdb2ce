// Tests of courses: values at every time that matters, texts written and read back, refused texts.
// SPDX-License-Identifier: Apache-2.0
#include "core/course.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace thinwire {
namespace {

using testing::HasSubstr;

std::vector<double> by_epoch(std::string_view text, uint64_t epochs) {
  const Course course = Course::parse(text).value();
  std::vector<double> values;
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
    values.push_back(course.at(epoch * 10, 10));
    EXPECT_EQ(course.at(epoch * 10 + 9, 10), values.back()) << text;  // to the end of the epoch
  }
  return values;
}

using Values = std::vector<double>;

TEST(Course, OfOneNumberIsConstant) {
  EXPECT_EQ(by_epoch("0.0123456789", 3), Values(3, 0.0123456789));
  EXPECT_FALSE(Course::is_course("0.01"));
  EXPECT_TRUE(Course::is_course("warmup(0.01;2)"));
}

// The paper: sparsity 75, 93.75, 98.4375, 99.6, 99.9 %.
TEST(Course, WarmupIsThatOfDgc) {
  const Values got = by_epoch("warmup(0.001;4)", 7);
  const double paper[] = {0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001, 0.001};
  for (size_t epoch = 0; epoch < 7; ++epoch) {
    EXPECT_NEAR(got[epoch] / paper[epoch], 1, 0.015) << epoch;
    EXPECT_NEAR(got[epoch], std::pow(0.001, std::min(epoch + 1.0, 5.0) / 5), 1e-6) << epoch;
  }
  EXPECT_EQ(got[4], 0.001);
}

TEST(Course, LinearGoesFromOneToTheOther) {
  EXPECT_EQ(by_epoch("linear(8;2;3)", 5), (Values{8, 6, 4, 2, 2}));
  EXPECT_EQ(by_epoch("linear(0.1;0.2;2)", 4), (Values{0.1, 0.15, 0.2, 0.2}));
}

TEST(Course, TablesHoldTheirValueUntilTheNext) {
  EXPECT_EQ(by_epoch("table(0.5;0.25@1;0.01@3)", 5), (Values{0.5, 0.25, 0.25, 0.01, 0.01}));
  const Course fraction = Course::parse("table(1;2@0.5)").value();
  EXPECT_EQ(fraction.at(4, 10), 1);
  EXPECT_EQ(fraction.at(5, 10), 2);
}

TEST(Course, AccordionsFollowTheRegime) {
  const Course course = Course::parse("accordion(2;1)").value();
  for (const uint64_t step : {0, 7, 1000}) {
    EXPECT_EQ(course.at(step, 10), 2);
    EXPECT_EQ(course.at(step, 10, true), 2);
    EXPECT_EQ(course.at(step, 10, false), 1);
  }
  EXPECT_EQ(course.ends(), (Values{2, 1}));
  EXPECT_TRUE(course.counts_epochs());
  EXPECT_EQ(course.regime_rule(), (RegimeRule{.eta = 0.5, .interval = {.amount = 10}}));
  const Course in_steps = Course::parse("accordion(0.1;0.01;0.25;70steps)").value();
  EXPECT_FALSE(in_steps.counts_epochs());
  EXPECT_EQ(in_steps.regime_rule(),
            (RegimeRule{.eta = 0.25, .interval = {.amount = 70, .in_steps = true}}));
  EXPECT_EQ(Course::parse("warmup(0.01;2)").value().regime_rule(), std::nullopt);
  EXPECT_EQ(Course::parse("warmup(0.01;2)").value().at(1, 10, false), 0.215443);
}

TEST(Course, IntervalsHaveTheNearestNumberOfSteps) {
  const auto steps = [](std::string_view text, uint64_t steps_per_epoch) {
    return RunTime::parse(text).value().steps(steps_per_epoch);
  };
  EXPECT_EQ(steps("10", 98), 980u);
  EXPECT_EQ(steps("0.25", 98), 25u);
  EXPECT_EQ(steps("0.001", 98), 1u);
  EXPECT_EQ(steps("70steps", 98), 70u);
  EXPECT_EQ(steps("1e300", 98), 1'000'000'000'000'000u);
}

TEST(Course, TimesMayBeSteps) {
  const Course linear = Course::parse("linear(4;0;4steps)").value();
  for (uint64_t step = 0; step < 8; ++step)
    EXPECT_EQ(linear.at(step, 1000), std::max(0.0, 4.0 - static_cast<double>(step)));
  const Course table = Course::parse("table(1;2@100 steps)").value();
  EXPECT_EQ(table.at(99, 7), 1);
  EXPECT_EQ(table.at(100, 7), 2);
  EXPECT_EQ(Course::parse("warmup(0.01;1steps)").value().at(0, 1000), 0.1);
}

TEST(Course, WithoutEpochsEveryStepIsOne) {
  EXPECT_EQ(Course::parse("table(1;2@3)").value().at(3, 0), 2);
}

TEST(Course, HasSixDigits) {
  EXPECT_EQ(Course::parse("linear(0;1;3)").value().at(1, 1), 0.333333);
  EXPECT_EQ(Course::parse("linear(0;1e9;3)").value().at(2, 1), 6.66667e8);
}

TEST(Course, EndsHoldTheLargestAndTheSmallest) {
  for (const std::string text : {"3", "warmup(0.001;4)", "linear(8;2;10)", "table(5;9@1;1@2)"}) {
    const Course course = Course::parse(text).value();
    const auto ends = course.ends();
    for (uint64_t step = 0; step < 12; ++step) {
      EXPECT_LE(course.at(step, 1), *std::max_element(ends.begin(), ends.end())) << text;
      EXPECT_GE(course.at(step, 1), *std::min_element(ends.begin(), ends.end())) << text;
    }
  }
}

TEST(Course, CanonicalTextIsTheSameCourse) {
  const std::pair<std::string, std::string> texts[] = {
      {"0.010", "0.01"},
      {" warmup( 1e-3 ; 4.0 ) ", "warmup(0.001;4)"},
      {"linear(8;2;100 steps)", "linear(8;2;100steps)"},
      {"table( 0.50; 0.1@1 ;0.01 @ 20)", "table(0.5;0.1@1;0.01@20)"},
      {"table(3)", "table(3)"},
      {"accordion(0.10; 0.01)", "accordion(0.1;0.01;0.5;10)"},
      {"accordion(2;1;0.2)", "accordion(2;1;0.2;10)"},
      {"accordion(2;1;0.2; 7 steps)", "accordion(2;1;0.2;7steps)"}};
  for (const auto& [text, canonical] : texts) {
    EXPECT_EQ(Course::parse(text).value().canonical(), canonical);
    EXPECT_EQ(Course::parse(canonical).value().canonical(), canonical);
  }
}

TEST(Course, BadTextsAreRefusedWithWhatIsMeant) {
  const std::pair<std::string, std::string> texts[] = {{"", "not a number"},
                                                       {"many", "not a number"},
                                                       {"nan", "not a number"},
                                                       {"grow(1;2)", "unknown course 'grow'"},
                                                       {"warmup(0.1;4", "closing bracket"},
                                                       {"warmup(0.1)", "takes 2 parts"},
                                                       {"warmup(0.1;2;3)", "takes 2 parts"},
                                                       {"warmup(0;4)", "ends above 0"},
                                                       {"warmup(0.1;0)", "above 0"},
                                                       {"warmup(;4)", "not a number"},
                                                       {"warmup(0.1;)", "not a time"},
                                                       {"warmup(0.1;-4)", "not a time"},
                                                       {"linear(1;2;x)", "not a time"},
                                                       {"linear(1;2)", "takes 3 parts"},
                                                       {"table()", "not a number"},
                                                       {"table(1@2)", "but the first"},
                                                       {"table(1;2)", "but the first"},
                                                       {"table(1;@2)", "not a number"},
                                                       {"table(1;2@)", "not a time"},
                                                       {"table(1;2@3;4@3)", "ascend"},
                                                       {"table(1;2@3;4@5steps)", "in one unit"},
                                                       {"accordion(1)", "takes 2 values"},
                                                       {"accordion(1;2;3;4;5)", "takes 2 values"},
                                                       {"accordion(1;x)", "'x' is not a number"},
                                                       {"accordion(1;2;0)", "is above 0"},
                                                       {"accordion(1;2;;4)", "not a number"},
                                                       {"accordion(1;2;0.5;0)", "above 0"},
                                                       {"accordion(1;2;0.5;x)", "not a time"}};
  for (const auto& [text, why] : texts) {
    const auto course = Course::parse(text);
    EXPECT_EQ(course.status().code(), ErrorCode::kBadOption) << text;
    EXPECT_THAT(course.status().message(), HasSubstr(why)) << text;
  }
}

}  // namespace
}  // namespace thinwire
