// Tests of formatted numbers and times.
// SPDX-License-Identifier: Apache-2.0
#include "cli/text.h"

#include <gmock/gmock.h>

namespace thinwire::cli {
namespace {

using ::testing::ElementsAre;

TEST(Text, Thousands) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(1000), "1,000");
  EXPECT_EQ(with_thousands(1234567), "1,234,567");
}

TEST(Text, ShortNumbersLoseTheirZeros) {
  EXPECT_EQ(short_number(3), "3");
  EXPECT_EQ(short_number(2.5), "2.5");
  EXPECT_EQ(short_number(0.0426), "0.04");
  EXPECT_EQ(short_number(100), "100");
  EXPECT_EQ(short_number(0), "0");
}

TEST(Text, BytesKeepThreeDigitsAndRoundIntoTheNextUnit) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(999.6), "1.00 kB");
  EXPECT_EQ(human_bytes(1234), "1.23 kB");
  EXPECT_EQ(human_bytes(999600), "1.00 MB");
  EXPECT_EQ(human_bytes(12.34e9), "12.3 GB");
  EXPECT_EQ(human_bytes(5e18), "5000 PB");
}

TEST(Text, Durations) {
  EXPECT_EQ(duration(0.44), "0.4 s");
  EXPECT_EQ(duration(9.97), "0:10");
  EXPECT_EQ(duration(59.6), "1:00");
  EXPECT_EQ(duration(3723), "1:02:03");
  EXPECT_EQ(duration(-1), "?");
  EXPECT_EQ(duration(0.0 / 0.0), "?");
}

TEST(Text, RatiosAndPercentages) {
  EXPECT_EQ(ratio(1), "1.00x");
  EXPECT_EQ(ratio(9.997), "10.0x");
  EXPECT_EQ(ratio(97.34), "97.3x");
  EXPECT_EQ(ratio(512.3), "512x");
  EXPECT_EQ(percent(0.09124), "9.12%");
}

TEST(Text, SplitAndTrim) {
  EXPECT_THAT(split("a;b;", ';'), ElementsAre("a", "b", ""));
  EXPECT_THAT(split("", ';'), ElementsAre(""));
  EXPECT_EQ(trim(" \ta b\n"), "a b");
  EXPECT_EQ(trim("  "), "");
  EXPECT_EQ(first_line("one\ntwo"), "one");
}

TEST(Text, CodecsAreDividedOutsideOfBrackets) {
  EXPECT_THAT(split_codecs(
                  " fp32; topk:density=warmup(0.01;1) ;;int8 | 1: topk:density=linear(0.1;0.01;3)"),
              ElementsAre("fp32", "topk:density=warmup(0.01;1)",
                          "int8 | 1: topk:density=linear(0.1;0.01;3)"));
  EXPECT_THAT(split_codecs("; "), ElementsAre());
  EXPECT_THAT(split_codecs("topk:density=warmup(0.01;1"),
              ElementsAre("topk:density=warmup(0.01;1"));
  EXPECT_THAT(split_codecs("topk); fp32"), ElementsAre("topk)", "fp32"));
}

TEST(Text, PrintableTextMovesNoCursor) {
  EXPECT_EQ(printable("a b/\u00e4\u2501\U0001f600"), "a b/\u00e4\u2501\U0001f600");
  EXPECT_EQ(printable("\033[2Ja\nb\x7f"), "?[2Ja?b?");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "?2J");  // C1's own escape
  EXPECT_EQ(printable("\xff"
                      "a\xc3"),
            "?a?");  // no UTF-8, and half a character
  EXPECT_EQ(printable("\xe2\x94"
                      "a"),
            "??a");
  EXPECT_EQ(printable(""), "");
}

TEST(Text, ColumnsCountsCodePoints) { EXPECT_EQ(columns("a\u2501\u2501b"), 4u); }

}  // namespace
}  // namespace thinwire::cli
