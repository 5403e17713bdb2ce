// Tests of rules: which one decides for a tensor, which form one section, and bad ones.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/terms/sections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// conv.weight, conv.bias, norm.weight, embedding, nothing, lstm.weight, temperature, linear.weight,
// linear.bias
Sections sections_of(std::vector<TensorRule> rules, const std::string& codec = "fp32") {
  return resolve_sections({.codec = codec, .rules = std::move(rules)}, small_model(), 0).value();
}

std::string error_of(const ExchangeOptions& options) {
  return resolve_sections(options, small_model(), 0).status().message();
}

std::string error_of(const TensorRule& rule) {
  return error_of({.rules = {{.pattern = "lstm*", .codec = "fp16"}, rule}});
}

TEST(Sections, WithoutRulesThereIsOne) {
  const Sections sections = sections_of({});
  ASSERT_EQ(sections.used.size(), 1u);
  EXPECT_THAT(sections.used[0].tensors, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(sections.of_setting, ElementsAre(0));
}

TEST(Sections, TheFirstRuleThatFitsDecides) {
  const Sections sections =
      sections_of({{.pattern = "conv.*", .codec = "topk"},
                   {.pattern = "*.weight", .codec = "int8", .feedback = "ef21"},
                   {.pattern = "*.bias", .codec = "int8", .method = "gather"}});
  ASSERT_EQ(sections.used.size(), 4u);
  EXPECT_THAT(sections.used[0].tensors, ElementsAre(3, 4, 6));
  EXPECT_THAT(sections.used[1].tensors, ElementsAre(0, 1));
  EXPECT_THAT(sections.used[2].tensors, ElementsAre(2, 5, 7));
  EXPECT_THAT(sections.used[3].tensors, ElementsAre(8));
  EXPECT_THAT(sections.of_tensor, ElementsAre(1, 1, 2, 0, 0, 2, 0, 2, 3));
  EXPECT_THAT(sections.of_setting, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(sections.used[1].terms.feedback, "residual");
  EXPECT_EQ(sections.used[2].terms.feedback, "ef21");
  EXPECT_EQ(sections.used[3].terms.method->name, "gather");
  EXPECT_TRUE(sections.used[2].options.rules.empty());
}

TEST(Sections, RulesThatSayTheSameAreOne) {
  const Sections sections = sections_of({{.pattern = "conv.*", .codec = "topk"},
                                         {.pattern = "lstm.*", .codec = "fp32"},
                                         {.pattern = "linear.*", .codec = "topk:density=0.01"},
                                         {.pattern = "*", .codec = "fp32", .method = "gather"}});
  ASSERT_EQ(sections.used.size(), 3u);
  EXPECT_THAT(sections.used[0].tensors, ElementsAre(5));
  EXPECT_THAT(sections.used[1].tensors, ElementsAre(0, 1, 7, 8));
  EXPECT_THAT(sections.used[2].tensors, ElementsAre(2, 3, 4, 6));
  EXPECT_THAT(sections.of_setting, ElementsAre(0, 1, 0, 1, 2));
}

TEST(Sections, ACodecThatNoTensorHasIsInNone) {
  const Sections sections = sections_of({{.pattern = "*", .codec = "topk"}});
  ASSERT_EQ(sections.used.size(), 1u);
  EXPECT_EQ(sections.used[0].tensors.size(), small_model().size());
  EXPECT_THAT(sections.of_setting, ElementsAre(kUnused, 0));
}

TEST(Sections, MistakesNameTheRuleAndTheChoices) {
  EXPECT_THAT(error_of({.pattern = "linear.wieght", .codec = "fp16"}),
              AllOf(HasSubstr("rule 'linear.wieght': no tensor is named so"),
                    HasSubstr("names: conv.weight, conv.bias"), HasSubstr(", ..."),
                    HasSubstr("did you mean 'linear.weight'?")));
  EXPECT_THAT(error_of({.pattern = "lstm.w*", .codec = "fp16"}),
              HasSubstr("rule 'lstm.w*': rules before it decide for all tensors"));
  EXPECT_THAT(error_of({.pattern = "conv.*", .codec = "topkk"}),
              AllOf(HasSubstr("rule 'conv.*': "), HasSubstr("did you mean 'topk'?")));
  EXPECT_THAT(error_of({.pattern = "conv.*", .codec = "topk", .feedback = "ef"}),
              AllOf(HasSubstr("rule 'conv.*': "), HasSubstr("ef21")));
  EXPECT_THAT(error_of({.pattern = "conv.*", .codec = "topk", .method = "dense"}),
              AllOf(HasSubstr("exchange: rule 'conv.*': method dense cannot add"),
                    HasSubstr("use gather"), Not(HasSubstr("exchange: exchange"))));
  EXPECT_THAT(error_of({.codec = "fp61", .rules = {{.pattern = "*", .codec = "fp32"}}}),
              HasSubstr("fp32"));
  EXPECT_FALSE(check_exchange({.rules = {{.pattern = "any", .codec = "fp61"}}}));
  EXPECT_TRUE(check_exchange({.rules = {{.pattern = "any", .codec = "fp16"}}}));
}

}  // namespace
}  // namespace thinwire::testing
