// Tests of where momentum acts, for every codec and memory, and of what is refused.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "thinwire/exchange.h"
#include "thinwire/momentum.h"

namespace thinwire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Momentum kOwn{.momentum = 0.9};

Result<MomentumPlan> place(std::string_view where, const std::string& codec,
                           const std::string& feedback = "auto", const Momentum& own = kOwn) {
  return place_momentum(where, own, {.codec = codec, .feedback = feedback});
}

std::string memory_of(std::string_view where, const std::string& codec,
                      const std::string& feedback = "auto", const Momentum& own = kOwn) {
  const MomentumPlan plan = place(where, codec, feedback, own).value();
  EXPECT_EQ(plan.in_memory, plan.feedback.find("momentum=") != std::string::npos);
  return plan.in_memory ? plan.feedback : "at the optimiser";
}

TEST(MomentumPlace, AutoIsTheMemoryOfCodecsThatLeaveMostValues) {
  const std::string memory = "ahead:momentum=0.9,dampening=0,nesterov=false";
  for (const char* codec :
       {"topk", "sidco", "dgc", "adacomp", "redsync", "gaussiank", "threshold:threshold=0.1",
        "fp32 | 1: topk:density=warmup(0.01;4)", "sidco:density=warmup(0.01;1)", "scalecom",
        "randomk", "srht", "countsketch"})
    EXPECT_EQ(memory_of("auto", codec), memory) << codec;
  for (const char* codec : {"fp32", "fp16", "int8", "qsgd", "terngrad", "natural", "sign", "onebit",
                            "uniform:bits=4", "powersgd", "fp32 | 1: int8"})
    EXPECT_EQ(memory_of("auto", codec), "at the optimiser") << codec;
}

TEST(MomentumPlace, OptionsOfTheOptimiserGoAlong) {
  EXPECT_EQ(memory_of("auto", "topk", "auto", {.momentum = 0.85, .dampening = 0.1}),
            "ahead:momentum=0.85,dampening=0.1,nesterov=false");
  EXPECT_EQ(memory_of("auto", "topk", "auto", {.momentum = 1.0 / 3, .nesterov = true}),
            "ahead:momentum=0.3333333333333333,dampening=0,nesterov=true");
  EXPECT_EQ(place("auto", "topk", "auto", {.momentum = 1}).status().code(), ErrorCode::kBadOption);
}

TEST(MomentumPlace, AMemoryThatIsNamedStays) {
  for (const char* feedback : {"residual", "none", "ef21", "lowpass", "dgc:momentum=0"}) {
    const MomentumPlan plan = place("auto", "topk", feedback).value();
    EXPECT_FALSE(plan.in_memory);
    EXPECT_EQ(plan.feedback, feedback);
  }
  EXPECT_EQ(memory_of("auto", "topk", "dgc:clip=2,mask=false"),
            "dgc:momentum=0.9,dampening=0,nesterov=false,clip=2,mask=false");
}

// The optimiser has one momentum: where a codec of a rule wants it in the memory, all memories hold
// it.
TEST(MomentumPlace, WithRulesItIsInAllMemoriesOrInNone) {
  const auto with_rules = [](std::string_view where, const std::string& codec,
                             std::vector<TensorRule> rules) {
    return place_momentum(where, kOwn, {.codec = codec, .rules = std::move(rules)});
  };
  const TensorRule dense{.pattern = "*.bias", .codec = "fp32"};
  const TensorRule sparse{.pattern = "conv*", .codec = "topk"};
  for (const auto& [codec, rules] :
       {std::pair("topk", std::vector{dense}), std::pair("int8", std::vector{dense, sparse})}) {
    const MomentumPlan plan = with_rules("auto", codec, rules).value();
    EXPECT_TRUE(plan.in_memory);
    EXPECT_THAT(plan.feedback, HasSubstr("momentum=0.9"));
    ASSERT_EQ(plan.rules.size(), rules.size());
    for (size_t i = 0; i < rules.size(); ++i) {
      EXPECT_THAT(plan.rules[i].feedback, HasSubstr("momentum=0.9"));
      EXPECT_EQ(plan.rules[i].pattern, rules[i].pattern);
    }
  }
  const MomentumPlan none = with_rules("auto", "int8", {dense}).value();
  EXPECT_FALSE(none.in_memory);
  EXPECT_EQ(none.rules, std::vector{dense});
  EXPECT_FALSE(with_rules("optimizer", "topk", {sparse}).value().in_memory);

  const TensorRule named{.pattern = "conv*", .codec = "int8", .feedback = "ef21"};
  EXPECT_THAT(with_rules("auto", "topk", {named}).status().message(),
              AllOf(HasSubstr("rule 'conv*': "), HasSubstr("memory 'ef21' cannot take it over")));
  const TensorRule twice{.pattern = "conv*", .codec = "topk", .feedback = "dgc:momentum=0.5"};
  EXPECT_THAT(with_rules("optimizer", "fp32", {twice}).status().message(),
              AllOf(HasSubstr("rule 'conv*': "), HasSubstr("would act twice")));
}

TEST(MomentumPlace, BothPlacesCanBeAskedFor) {
  EXPECT_EQ(memory_of("optimizer", "topk"), "at the optimiser");
  EXPECT_EQ(memory_of("memory", "fp32"), memory_of("auto", "topk"));
  EXPECT_EQ(memory_of("memory", "qsgd"), "velocity:momentum=0.9,dampening=0,nesterov=false");
  EXPECT_EQ(memory_of("memory", "sign"),
            "dgc:momentum=0.9,dampening=0,nesterov=false,mask=false");  // sends every value
  EXPECT_EQ(memory_of("memory", "topk"), memory_of("auto", "topk"));
}

TEST(MomentumPlace, WithoutMomentumThereIsNothingToPlace) {
  for (const char* where : {"auto", "memory", "optimizer"})
    for (const char* feedback : {"auto", "dgc", "momentum"})
      EXPECT_EQ(place(where, "topk", feedback, {}).value().feedback, feedback);
}

TEST(MomentumPlace, TwiceIsRefused) {
  const struct {
    const char *where, *codec, *feedback;
  } kTwice[] = {{"auto", "topk", "dgc:momentum=0.5"}, {"memory", "topk", "dgc:momentum=0.5"},
                {"optimizer", "topk", "dgc"},         {"auto", "topk", "velocity:nesterov=true"},
                {"auto", "signum", "auto"},           {"optimizer", "signum", "auto"},
                {"auto", "topk", "momentum"}};
  for (const auto& [where, codec, feedback] : kTwice) {
    const Status status = place(where, codec, feedback).status();
    EXPECT_EQ(status.code(), ErrorCode::kBadOption) << where << codec << feedback;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("would act twice"), HasSubstr("of 0.9")));
  }
}

TEST(MomentumPlace, WhatCannotHoldItIsRefused) {
  for (const char* feedback : {"residual", "none", "ef21", "dgc:momentum=0"})
    EXPECT_THAT(place("memory", "topk", feedback).status().message(),
                HasSubstr("memory '" + std::string(feedback) + "' cannot take it over"));
  EXPECT_THAT(place("memory", "scalecom", "lowpass").status().message(),
              AllOf(HasSubstr("'lowpass' cannot"), HasSubstr("name ahead or dgc")));
  EXPECT_THAT(place("worker", "topk").status().message(),
              HasSubstr("known: auto, memory, optimizer"));
  EXPECT_EQ(place("auto", "elephant").status().code(), ErrorCode::kUnknownName);
  EXPECT_THAT(place("auto", "topk", "auto", {.momentum = 0.9, .dampening = 0.5, .nesterov = true})
                  .status()
                  .message(),
              HasSubstr("no dampening"));
}

// Of Adam with its usual beta1.
Result<bool> acts(std::string_view where, const ExchangeOptions& options) {
  return first_moment_acts(where, 0.9, options);
}

TEST(FirstMoment, IsAbsentBesideCodecsThatLeaveMostValues) {
  for (const char* codec : {"topk", "sidco", "adacomp", "fp32 | 1: topk"}) {
    EXPECT_FALSE(acts("auto", {.codec = codec}).value()) << codec;
    EXPECT_TRUE(acts("optimizer", {.codec = codec}).value()) << codec;
  }
  for (const char* codec : {"fp32", "int8", "powersgd", "sign"})
    EXPECT_TRUE(acts("auto", {.codec = codec}).value()) << codec;
}

TEST(FirstMoment, StaysBesideAMemoryThatIsNamedAndHasNoMomentum) {
  for (const char* feedback : {"residual", "ef21", "dgc:momentum=0", "dgc:momentum=0,clip=2"})
    EXPECT_TRUE(acts("auto", {.codec = "topk", .feedback = feedback}).value()) << feedback;
}

// A memory is the same one whether its default momentum is spelt out or not, and whether it is
// named or the codec's default.
TEST(FirstMoment, IsRefusedBesideAMemoryWithMomentum) {
  for (const char* where : {"auto", "optimizer"}) {
    for (const char* feedback : {"dgc", "dgc:clip=2", "dgc:momentum=0.9", "ahead", "velocity"}) {
      const ExchangeOptions options{.codec = "topk", .feedback = feedback};
      const Status status = acts(where, options).status();
      EXPECT_EQ(status.code(), ErrorCode::kBadOption) << feedback;
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr("would act twice"), HasSubstr("and the optimiser one of 0.9"),
                        HasSubstr("set the optimiser's to 0, or give the memory momentum=0")));
      EXPECT_TRUE(first_moment_acts(where, 0, options).value()) << feedback;
    }
    EXPECT_THAT(acts(where, {.codec = "signum"}).status().message(),
                HasSubstr("memory 'momentum' has a momentum of 0.9, "));
    EXPECT_TRUE(acts(where, {.codec = "signum", .feedback = "momentum:beta=0"}).value());
  }
}

// The optimiser has one first moment, whatever the memories of other tensors are.
TEST(FirstMoment, IsAbsentBesideSuchACodecOfAnyRule) {
  const TensorRule sparse{.pattern = "w*", .codec = "topk"};
  EXPECT_FALSE(acts("auto", {.codec = "fp32", .rules = {sparse}}).value());
  for (const char* codec : {"int8", "topk:density=0.1"})
    for (const char* memory : {"ef21", "dgc:momentum=0.9"}) {
      const TensorRule named{.pattern = "w*", .codec = codec, .feedback = memory};
      EXPECT_FALSE(acts("auto", {.codec = "topk", .rules = {named}}).value())
          << codec << " " << memory;
      Result<bool> beside_fp32 = acts("auto", {.codec = "fp32", .rules = {named}});
      if (memory == std::string("ef21"))
        EXPECT_TRUE(beside_fp32.value()) << codec;
      else
        EXPECT_THAT(beside_fp32.status().message(),
                    AllOf(HasSubstr("rule 'w*': "), HasSubstr("would act twice")));
    }
}

TEST(FirstMoment, CannotActInTheMemory) {
  EXPECT_EQ(acts("memory", {}).status().code(), ErrorCode::kBadOption);
  EXPECT_EQ(acts("nowhere", {}).status().code(), ErrorCode::kUnknownName);
}

TEST(MomentumOfAnyOptimiser, ActsOnce) {
  for (const ExchangeOptions& once :
       {ExchangeOptions{.codec = "topk"}, ExchangeOptions{.codec = "fp32"},
        ExchangeOptions{.codec = "auto"}, ExchangeOptions{.codec = "topk", .feedback = "ef21"}})
    EXPECT_TRUE(check_momentum_acts_once(0.9, once)) << once.codec;
  for (const ExchangeOptions& twice :
       {ExchangeOptions{.codec = "fp32", .feedback = "velocity"},
        ExchangeOptions{.codec = "signum"},
        ExchangeOptions{.codec = "int8", .rules = {{.pattern = "w*", .codec = "signum"}}}}) {
    EXPECT_THAT(check_momentum_acts_once(0.5, twice).message(),
                HasSubstr("would act twice: memory"));
    EXPECT_TRUE(check_momentum_acts_once(0, twice)) << twice.codec;
  }
  EXPECT_EQ(check_momentum_acts_once(0.9, {.codec = "elephant"}).code(), ErrorCode::kUnknownName);
}

}  // namespace
}  // namespace thinwire
