// Tests of links: what may be written, and the time that bytes take.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "thinwire/step_plan.h"

namespace thinwire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LinkSpec, IsReadWithItsUnits) {
  const LinkSpec link = parse_link("2.5gbit,20ms").value();
  EXPECT_DOUBLE_EQ(link.bits_per_second, 2.5e9);
  EXPECT_DOUBLE_EQ(link.latency_seconds, 0.02);
  EXPECT_DOUBLE_EQ(parse_link("800kbit").value().bits_per_second, 8e5);
  EXPECT_DOUBLE_EQ(parse_link("100mbit,50us").value().latency_seconds, 5e-5);
  EXPECT_DOUBLE_EQ(parse_link("none,0.1s").value().bits_per_second, 0);
}

TEST(LinkSpec, IsWrittenInTheLargestUnit) {
  EXPECT_EQ(to_string(parse_link("1gbit,20ms").value()), "1 Gbit/s, 20 ms");
  EXPECT_EQ(to_string(parse_link("1500mbit").value()), "1.5 Gbit/s");
  EXPECT_EQ(to_string(parse_link("none").value()), "no limit");
}

TEST(LinkSpec, IsWrittenWithoutTheErrorsOfDivisions) {
  EXPECT_EQ(to_string(parse_link("1gbit,0.2ms").value()), "1 Gbit/s, 200 us");
  EXPECT_EQ(to_string(LinkSpec{.bits_per_second = 1e9 / 3, .latency_seconds = 0}),
            "333.3333333333333 Mbit/s");
}

TEST(LinkSpec, MistakesNameThePartAndTheChoices) {
  for (const char* text : {"1gb", "gbit", "-1gbit", "0gbit", "", "1e99gbit", "infgbit", "nangbit"})
    EXPECT_THAT(parse_link(text).status().message(),
                AllOf(HasSubstr("is no rate"), HasSubstr("1gbit")))
        << text;
  for (const char* text : {"1gbit,20", "1gbit,", "1gbit,-1ms", "1gbit,ms"})
    EXPECT_THAT(parse_link(text).status().message(),
                AllOf(HasSubstr("is no latency"), HasSubstr("20ms")))
        << text;
}

TEST(LinkSpec, BytesTakeTheTimeOfTheirHeadersToo) {
  EXPECT_DOUBLE_EQ(parse_link("8mbit").value().seconds_for(1e6), 1.048);
  EXPECT_EQ(LinkSpec{}.seconds_for(1e9), 0);
}

}  // namespace
}  // namespace thinwire
