// Options: defaults, canonical text, and errors that name key, value and choices.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace thinwire {
namespace {

using ::testing::HasSubstr;

const std::vector<OptionInfo>& table() {
  static const std::vector<OptionInfo> rows = {
      {.name = "density", .type = OptionType::kNumber, .fallback = "0.01", .min = 0, .max = 1},
      {.name = "stages", .type = OptionType::kInteger, .fallback = "0", .min = 0, .max = 10},
      {.name = "law", .type = OptionType::kChoice, .fallback = "a", .choices = {"a", "b"}},
      {.name = "exact", .type = OptionType::kFlag, .fallback = "true"},
  };
  return rows;
}

Result<Options> parse(std::string_view spec) {
  auto text = parse_spec("codec", spec);
  if (!text) return text.status();
  return parse_options("codec 'x'", table(), text.value().settings);
}

TEST(Options, DefaultsAndCanonicalText) {
  auto options = parse("x").value();
  EXPECT_EQ(options.number("density"), 0.01);
  EXPECT_EQ(options.integer("stages"), 0);
  EXPECT_EQ(options.text("law"), "a");
  EXPECT_TRUE(options.flag("exact"));
  EXPECT_EQ(options.canonical(), "density=0.01,stages=0,law=a,exact=true");
  EXPECT_EQ(parse("x:exact=false,density=1e-2").value().canonical(),
            "density=0.01,stages=0,law=a,exact=false");
}

TEST(Options, ErrorsNameKeyValueAndChoices) {
  EXPECT_THAT(parse("x:densty=1").status().message(),
              HasSubstr("unknown option 'densty'; known: density, stages, law, exact"));
  EXPECT_THAT(parse("x:density=2").status().message(),
              HasSubstr("option 'density' is '2', but must be a number from 0 to 1"));
  EXPECT_THAT(parse("x:stages=1.5").status().message(), HasSubstr("must be a whole number"));
  EXPECT_THAT(parse("x:law=c").status().message(), HasSubstr("must be one of: a, b"));
  EXPECT_THAT(parse("x:exact=yes").status().message(), HasSubstr("true or false"));
  EXPECT_THAT(parse("x:stages=1,stages=2").status().message(), HasSubstr("given twice"));
  EXPECT_EQ(parse("x:density=nan").status().code(), ErrorCode::kBadOption);
  EXPECT_EQ(parse("x:density=").status().code(), ErrorCode::kBadOption);
}

TEST(Options, SpecTextMustBeWellFormed) {
  for (const char* bad : {"", ":density=1", "x:", "x:density", "x:=1", "x:a=1,"})
    EXPECT_EQ(parse_spec("codec", bad).status().code(), ErrorCode::kBadOption) << bad;
}

TEST(Options, WrongUseIsABrokenContract) {
  auto options = parse("x").value();
  EXPECT_THROW(options.number("nope"), Error);
  EXPECT_THROW(options.integer("density"), Error);
}

}  // namespace
}  // namespace thinwire
