// Tests of the rules of a recipe's exchange.
// SPDX-License-Identifier: Apache-2.0
#include "train/recipe_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "thinwire/options.h"
#include "thinwire/trainer.h"

namespace thinwire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const std::string& text) { return parse_rules(text).status().message(); }

TEST(RecipeRules, ReadsPatternsCodecsAndTheRest) {
  EXPECT_TRUE(parse_rules("").value().empty());
  const std::vector<TensorRule> rules =
      parse_rules(
          "{*.bias} fp32 {[ab]*} topk:density=0.1 | 2: int8 {feedback} ef21 {method} gather "
          "{grouping} model")
          .value();
  EXPECT_EQ(rules, (std::vector<TensorRule>{{.pattern = "*.bias", .codec = "fp32"},
                                            {.pattern = "[ab]*",
                                             .codec = "topk:density=0.1 | 2: int8",
                                             .feedback = "ef21",
                                             .method = "gather",
                                             .grouping = Grouping::kModel}}));
}

TEST(RecipeRules, MistakesSayWhere) {
  EXPECT_THAT(error_of("fp32"), HasSubstr("'fp32' begins with no name in braces"));
  EXPECT_THAT(error_of("{a fp32"), HasSubstr("begins with no name in braces"));
  EXPECT_THAT(error_of("{} fp32"), HasSubstr("a pattern is empty"));
  EXPECT_THAT(error_of("{a} fp32 {b}"), HasSubstr("'b' has no codec"));
  EXPECT_THAT(error_of("{a} fp32 {method}"), HasSubstr("'method' has no value"));
  EXPECT_THAT(error_of("{a} fp32 {grouping} all"),
              HasSubstr("rule 'a': unknown grouping 'all'; known: auto, tensor, model, global"));
}

// The key to blame, and what is wrong.
std::string fault_of(const std::vector<std::pair<std::string, std::string>>& settings) {
  const auto faults = find_faults(parse_options("test", recipe_keys(), settings).value());
  return faults.empty() ? "" : faults[0].key + ": " + faults[0].status.message();
}

TEST(RecipeRules, AreCheckedWithTheRecipe) {
  EXPECT_EQ(fault_of({{"exchange.rules", "{*.bias} fp32"}}), "");
  EXPECT_THAT(fault_of({{"exchange.rules", "{a} fp61"}}),
              AllOf(HasSubstr("exchange.rules: "), HasSubstr("rule 'a': ")));
  EXPECT_THAT(fault_of({{"exchange.rules", "{a} topk {method} dense"}}),
              HasSubstr("rule 'a': method dense cannot add"));
  EXPECT_THAT(fault_of({{"exchange.rules", "{a} fp32"}, {"sync.method", "local:tau=2"}}),
              HasSubstr("not for local methods"));
  EXPECT_THAT(fault_of({{"exchange.rules", "{a} fp32"}, {"pipeline.stages", "2"}}),
              AllOf(HasSubstr("exchange.rules: "), HasSubstr("not for pipelines")));
}

}  // namespace
}  // namespace thinwire
