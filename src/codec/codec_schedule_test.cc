// Tests of CodecSchedule: which codec holds when, texts written and read back, refused texts.
// SPDX-License-Identifier: Apache-2.0
#include "codec/codec_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "thinwire/exchange.h"

namespace thinwire {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> by_epoch(std::string_view text, uint64_t epochs) {
  const CodecSchedule schedule = std::move(CodecSchedule::parse(text).value());
  std::vector<std::string> codecs;
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) codecs.push_back(schedule.at(epoch * 5, 5));
  return codecs;
}

TEST(CodecSchedule, OfOneCodecIsConstant) {
  auto schedule = std::move(CodecSchedule::parse("topk:density=0.10").value());
  EXPECT_TRUE(schedule.is_constant());
  EXPECT_EQ(schedule.canonical(), make_codec("topk:density=0.1").value().canonical);
  EXPECT_THAT(schedule.ends(), ElementsAre("topk:density=0.10"));
  EXPECT_EQ(schedule.at(1000, 3), "topk:density=0.10");
}

TEST(CodecSchedule, OptionsFollowTheirCourse) {
  EXPECT_THAT(by_epoch("topk:density=table(0.5;0.25@1;0.1@3),values=fp16", 4),
              ElementsAre("topk:density=0.5,values=fp16", "topk:density=0.25,values=fp16",
                          "topk:density=0.25,values=fp16", "topk:density=0.1,values=fp16"));
  EXPECT_THAT(
      by_epoch("dgc:density=warmup(0.0001;3)", 4),
      ElementsAre("dgc:density=0.1", "dgc:density=0.01", "dgc:density=0.001", "dgc:density=1e-04"));
}

TEST(CodecSchedule, WholeNumbersAreRounded) {
  EXPECT_THAT(by_epoch("sidco:stages=linear(4;1;2)", 3),
              ElementsAre("sidco:stages=4", "sidco:stages=3", "sidco:stages=1"));  // 2.5 is 3
}

TEST(CodecSchedule, CodecsFollowEachOther) {
  const std::string text = "fp32 | 1: topk:density=table(0.5;0.1@2) | 3: fp16";
  EXPECT_THAT(by_epoch(text, 4),
              ElementsAre("fp32", "topk:density=0.5", "topk:density=0.1", "fp16"));
  const auto in_steps = std::move(CodecSchedule::parse("fp32|7steps:fp16").value());
  EXPECT_EQ(in_steps.at(6, 2), "fp32");
  EXPECT_EQ(in_steps.at(7, 2), "fp16");
  EXPECT_FALSE(in_steps.is_constant());
}

TEST(CodecSchedule, CanonicalTextIsTheSameSchedule) {
  for (const auto& [text, canonical] :
       {std::pair<std::string, std::string>{"fp32|1.0:topk:density=warmup( 0.010;4 )",
                                            "fp32 | 1: topk:density=warmup(0.01;4)"},
        {"topk:density=linear(1;0.5;10steps)", "topk:density=linear(1;0.5;10steps)"}}) {
    EXPECT_EQ(CodecSchedule::parse(text).value().canonical(), canonical);
    EXPECT_EQ(CodecSchedule::parse(canonical).value().canonical(), canonical);
  }
}

TEST(CodecSchedule, ListsTheCodecsAtItsEnds) {
  EXPECT_THAT(CodecSchedule::parse("fp32 | 1: topk:density=linear(0.5;0.1;4)").value().ends(),
              ElementsAre("fp32", "topk:density=0.5", "topk:density=0.1"));
}

TEST(CodecSchedule, AccordionsFollowTheRegime) {
  const CodecSchedule schedule =
      CodecSchedule::parse("fp32 | 2: dgc:density=accordion(0.1;0.01),sample=table(0.1;0.2@3)")
          .value();
  EXPECT_EQ(schedule.at(13, 7, false), "fp32");
  EXPECT_EQ(schedule.at(14, 7, true), "dgc:density=0.1,sample=0.1");
  EXPECT_EQ(schedule.at(21, 7, false), "dgc:density=0.01,sample=0.2");
  EXPECT_EQ(schedule.regime_rule(13, 7), std::nullopt);
  EXPECT_EQ(schedule.regime_rule(14, 7), (RegimeRule{.eta = 0.5, .interval = {.amount = 10}}));
  EXPECT_THAT(schedule.regimes(),
              ElementsAre(std::pair("dgc:density=0.1,sample=0.1", "dgc:density=0.01,sample=0.1")));
  EXPECT_THAT(CodecSchedule::parse("topk:density=warmup(0.1;2)").value().regimes(), IsEmpty());
}

TEST(CodecSchedule, AccordionsAreRefusedWhereNobodyAsks) {
  const auto check = [](std::string_view text) {
    return CodecSchedule::parse(text).value().check_no_regimes("wire", "there are none here");
  };
  EXPECT_TRUE(check("fp32 | 1: topk:density=warmup(0.1;2)"));
  const Status status = check("fp32 | 1: topk:density=accordion(0.1;0.01)");
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(
      status.message(),
      AllOf(HasSubstr("wire: the schedule 'fp32 | 1: topk:density=accordion(0.1;0.01;0.5;10)'"),
            HasSubstr("there are none here; choose a warmup, linear or table")));
}

TEST(CodecSchedule, KnowsWhetherItCountsInEpochs) {
  for (const auto& [text, epochs] :
       {std::pair<std::string, bool>{"topk:density=0.1", false},
        {"topk:density=warmup(0.1;4)", true},
        {"topk:density=warmup(0.1;4steps)", false},
        {"topk:density=accordion(0.1;0.01)", true},
        {"topk:density=accordion(0.1;0.01;0.5;70steps)", false},
        {"fp32 | 2: topk:density=table(0.1;0.2@5steps)", true},
        {"fp32 | 2steps: topk:density=table(0.1;0.2@5)", true},
        {"fp32 | 2steps: topk:density=table(0.1;0.2@5steps)", false}}) {
    const CodecSchedule schedule = CodecSchedule::parse(text).value();
    EXPECT_EQ(schedule.counts_epochs(), epochs) << text;
    EXPECT_TRUE(schedule.check_epochs("exchange", 1)) << text;
    const Status status = schedule.check_epochs("exchange", 0);
    EXPECT_EQ(bool{status}, !epochs) << text;
    EXPECT_THAT(status.message(), HasSubstr(epochs ? "give steps_per_epoch" : "")) << text;
  }
}

TEST(CodecSchedule, MistakesAreNamed) {
  for (const auto& [text, why] : {std::pair<std::string, std::string>{"", "name is missing"},
                                  {"topq", "unknown codec 'topq'"},
                                  {"topk:dense=0.1", "unknown option 'dense'"},
                                  {"topk:dense=warmup(0.1;2)", "unknown option 'dense'"},
                                  {"topk:density=2", "must be"},
                                  {"topk:density=linear(0.1;2;4)", "must be"},
                                  {"topk:density=table(0.1;7@1;0.2@2)", "must be"},
                                  {"topk:density=grow(0.1)", "unknown course 'grow'"},
                                  {"topk:values=warmup(0.1;2)", "is no number"},
                                  {"topk:density=accordion(0.1;7)", "must be"},
                                  {"topk:density=accordion(7;0.1)", "must be"},
                                  {"dgc:density=accordion(0.1;0.2),sample=accordion(0.1;0.2;0.4)",
                                   "differ in eta or interval"},
                                  {"fp32 | topk", "must begin with the time"},
                                  {"fp32 | 1", "must begin with the time"},
                                  {"fp32 | 0: topk", "above 0"},
                                  {"fp32 | 2: topk | 2: fp16", "ascend"},
                                  {"fp32 | 2: topk | 5steps: fp16", "in one unit"},
                                  {"fp32 | 2: topk:density=9", "must be"}}) {
    const Status status = CodecSchedule::parse(text).status();
    EXPECT_FALSE(status.is_ok()) << text;
    EXPECT_THAT(status.message(), HasSubstr(why)) << text;
  }
}

}  // namespace
}  // namespace thinwire
