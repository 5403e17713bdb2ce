// Options: defaults, canonical text, and errors that name key, value and choices.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace thinwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<OptionInfo>& table() {
  static const std::vector<OptionInfo> rows = {
      {.name = "density", .type = OptionType::kNumber, .fallback = "0.01", .min = 0, .max = 1},
      {.name = "stages", .type = OptionType::kInteger, .fallback = "0", .min = 0, .max = 10},
      {.name = "law", .type = OptionType::kChoice, .fallback = "a", .choices = {"a", "b"}},
      {.name = "exact", .type = OptionType::kFlag, .fallback = "true"},
      {.name = "edges", .type = OptionType::kNumbers, .fallback = "", .min = 0, .max = 9},
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
  EXPECT_EQ(options.canonical(), "density=0.01,stages=0,law=a,exact=true,edges=");
  EXPECT_EQ(parse("x:exact=false,density=1e-2").value().canonical(),
            "density=0.01,stages=0,law=a,exact=false,edges=");
}

TEST(Options, ErrorsNameKeyValueAndChoices) {
  EXPECT_THAT(parse("x:densty=1").status().message(),
              HasSubstr("unknown option 'densty'; known: density, stages, law, exact, edges; "
                        "did you mean 'density'?"));
  EXPECT_THAT(parse("x:density=2").status().message(),
              HasSubstr("option 'density' is '2', but must be a number from 0 to 1"));
  EXPECT_THAT(parse("x:stages=1.5").status().message(), HasSubstr("must be a whole number"));
  EXPECT_THAT(parse("x:law=c").status().message(), HasSubstr("must be one of: a, b"));
  EXPECT_THAT(parse("x:exact=yes").status().message(), HasSubstr("true or false"));
  EXPECT_THAT(parse("x:stages=1,stages=2").status().message(), HasSubstr("given twice"));
  EXPECT_EQ(parse("x:density=nan").status().code(), ErrorCode::kBadOption);
  EXPECT_EQ(parse("x:density=").status().code(), ErrorCode::kBadOption);
}

TEST(Options, ListsOfNumbers) {
  auto options = parse("x:edges=1;2.50;9").value();
  EXPECT_THAT(options.numbers("edges"), ElementsAre(1, 2.5, 9));
  EXPECT_EQ(options.canonical("edges"), "1;2.5;9");
  EXPECT_THAT(parse("x").value().numbers("edges"), ElementsAre());
  const std::vector<std::pair<std::string, std::string>> commas = {{"edges", "1,2"}};
  EXPECT_THAT(parse_options("x", table(), commas).value().numbers("edges"), ElementsAre(1, 2));
  EXPECT_THAT(parse("x:edges=1;10").status().message(),
              HasSubstr("'edges' is '1;10', but must be numbers, separated by ';', from 0 to 9"));
  for (const char* bad : {"x:edges=;", "x:edges=1;", "x:edges=;1", "x:edges=1;;2", "x:edges=a"})
    EXPECT_EQ(parse(bad).status().code(), ErrorCode::kBadOption) << bad;
}

TEST(Options, SpecTextMustBeWellFormed) {
  for (const char* bad : {"", ":density=1", "x:", "x:density", "x:=1", "x:a=1,"})
    EXPECT_EQ(parse_spec("codec", bad).status().code(), ErrorCode::kBadOption) << bad;
}

TEST(Options, WrongUseIsABrokenContract) {
  auto options = parse("x").value();
  EXPECT_THROW(options.number("nope"), Error);
  EXPECT_THROW(options.integer("density"), Error);
  EXPECT_THROW(options.numbers("density"), Error);
}

}  // namespace
}  // namespace thinwire
