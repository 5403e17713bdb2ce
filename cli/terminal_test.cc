// Locales, and lines that are cut with their styles.
// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <gtest/gtest.h>

namespace thinwire::cli {
namespace {

TEST(Terminal, LocalesSayUtf8InSeveralWays) {
  for (const char* locale : {"C.UTF-8", "de_DE.utf8", "de_DE.utf-8", "en_US.Utf-8", "C.UTF8",
                             "UTF-8", "de_DE.UTF-8@euro"})
    EXPECT_TRUE(names_utf8(locale)) << locale;
  for (const char* locale : {"", "C", "POSIX", "de_DE.ISO-8859-1", "de_DE@euro"})
    EXPECT_FALSE(names_utf8(locale)) << locale;
}

TEST(Terminal, LinesAreCutAndTheirStylesEnd) {
  EXPECT_EQ(cut("plain", 10), "plain");
  EXPECT_EQ(cut("plain", 5), "plain");
  EXPECT_EQ(cut("plain", 2), "pl");
  EXPECT_EQ(cut("plain", 0), "");
  EXPECT_EQ(cut("\033[1mbold\033[0m more", 2), "\033[1mbo\033[0m");
  EXPECT_EQ(cut("\u00e4\u2588\u2588", 2), "\u00e4\u2588");
}

}  // namespace
}  // namespace thinwire::cli
