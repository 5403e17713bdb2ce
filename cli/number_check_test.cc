// Tests of the checks of numbers: what they let pass, and what they say.
// SPDX-License-Identifier: Apache-2.0
#include "cli/number_check.h"

#include <gtest/gtest.h>

#include <string>

namespace thinwire::cli {
namespace {

// What the command line prints behind the option's name; empty where the text may be written.
std::string said(const CLI::Validator& check, const std::string& text) { return check(text); }

TEST(NumberCheck, SaysWhichWholeNumbersMayBeWritten) {
  for (const char* good : {"1", "7", " 7", "1024"})
    EXPECT_EQ(said(whole_number(1, 1024), good), "");
  for (const std::string bad :
       {"0", "1025", "-1", "1.5", "a", "", "3 ", " ", "99999999999999999999"})
    EXPECT_EQ(said(whole_number(1, 1024), bad),
              "'" + bad + "' is not a whole number from 1 to 1024");
}

TEST(NumberCheck, SaysWhichNumberIsTooLarge) {
  for (const char* good : {"0", " 3", "9007199254740992"})
    EXPECT_EQ(said(whole_number(0), good), "");
  for (const std::string bad : {"-1", "a", ""})
    EXPECT_EQ(said(whole_number(0), bad), "'" + bad + "' is not a whole number of at least 0");
  for (const std::string large : {"9007199254740993", "99999999999999999999"})
    EXPECT_EQ(said(whole_number(0), large),
              "'" + large + "' is too large: 9007199254740992 is the most");
  EXPECT_EQ(said(whole_number(2), "1"), "'1' is not a whole number of at least 2");
}

TEST(NumberCheck, SaysWhichNumbersMayBeWritten) {
  for (const char* good : {"0.1", "3", "1e2"}) EXPECT_EQ(said(number_between(0.1, 100), good), "");
  for (const std::string bad : {"0", "101", "nan", "inf", "x", "1s", ""})
    EXPECT_EQ(said(number_between(0.1, 100), bad), "'" + bad + "' is not a number from 0.1 to 100");
  for (const char* good : {"0.001", "12"}) EXPECT_EQ(said(positive_number(), good), "");
  for (const std::string bad : {"0", "-2", "nan", "inf", "x"})
    EXPECT_EQ(said(positive_number(), bad), "'" + bad + "' is not a number above 0");
}

}  // namespace
}  // namespace thinwire::cli
