// Tests that ranks with different settings are refused before the first step, by name.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

struct Side2 {
  std::vector<TensorSpec> model = small_model();
  ExchangeOptions options = {};
};

// What every rank of three is told when rank 2 has `odd`.
std::vector<std::string> told(const Side2& usual, const Side2& odd, ErrorCode code) {
  std::vector<std::string> messages(3);
  run_local(3, [&](Group& group) {
    const Side2& mine = group.rank() == 2 ? odd : usual;
    Store store;
    try {
      make_exchange(group, store, mine.model, mine.options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      messages[static_cast<size_t>(group.rank())] = error.what();
    }
  });
  return messages;
}

std::vector<std::string> options_differ(const std::function<void(ExchangeOptions&)>& change) {
  Side2 odd;
  change(odd.options);
  return told({}, odd, ErrorCode::kMismatch);
}

TEST(ExchangeMismatch, EveryOptionThatDecidesWhatTravelsIsCompared) {
  EXPECT_THAT(
      options_differ([](ExchangeOptions& o) { o.codec = "fp16"; }),
      Each(AllOf(HasSubstr("'codec fp16' on rank 2"), HasSubstr("'codec fp32' on rank 0"))));
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.codec = "adacomp:bin_linear=100"; }),
              Each(HasSubstr("codec")));
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.feedback = "residual"; }),
              Each(HasSubstr("'feedback residual' on rank 2, 'feedback none' on rank 0")));
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.method = "gather"; }),
              Each(HasSubstr("'method gather' on rank 2, 'method scatter-reduce' on rank 0")));
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.grouping = Grouping::kModel; }),
              Each(HasSubstr("'grouping model' on rank 2")));
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.dense_kinds = {}; }),
              Each(HasSubstr("'dense kinds bias,norm' on rank 0")));
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.bucket_bytes = 7; }),
              Each(HasSubstr("'bucket bytes 7' on rank 2")));
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.chunk_values = 7; }),
              Each(HasSubstr("'chunk values 7' on rank 2")));
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.seed = 9; }),
              Each(HasSubstr("'seed 9' on rank 2, 'seed 0' on rank 0")));
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.max_skipped = 1; }),
              Each(HasSubstr("'max skipped 1' on rank 2")));
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.generation = 4; }),
              Each(HasSubstr("'generation 4' on rank 2")));
}

TEST(ExchangeMismatch, RulesAreCompared) {
  const auto rule = [](const std::string& pattern, const std::string& codec) {
    return [=](ExchangeOptions& o) { o.rules = {{.pattern = pattern, .codec = codec}}; };
  };
  EXPECT_THAT(options_differ(rule("*.bias", "fp16")),
              Each(HasSubstr("'rule '*.bias': codec fp16' on rank 2")));
  EXPECT_THAT(options_differ(rule("*.bais", "fp16")),
              Each(HasSubstr("'rule '*.bais': codec fp16' on rank 2")));
  EXPECT_THAT(options_differ(rule("*.bias", "fp61")),
              Each(HasSubstr("'rule '*.bias': codec fp61' on rank 2")));
  Side2 usual, odd;
  rule("*.bias", "topk")(usual.options);
  rule("*.bias", "topk:density=0.01")(odd.options);  // which is what topk means
  EXPECT_THAT(told(usual, odd, ErrorCode::kOk), Each(""));
  odd.options.rules[0].feedback = "ef21";
  EXPECT_THAT(told(usual, odd, ErrorCode::kMismatch),
              Each(HasSubstr("'rule '*.bias': feedback ef21' on rank 2")));
}

// What suits the codec now may be what somebody names, and another when the codec has changed.
TEST(ExchangeMismatch, MethodsThatFollowASchedule) {
  Side2 usual, odd;
  usual.options.codec = odd.options.codec = "topk | 1: fp32";
  odd.options.method = "gather";
  EXPECT_THAT(told(usual, odd, ErrorCode::kMismatch),
              Each(HasSubstr("'method gather' on rank 2, 'method gather first, then")));
}

TEST(ExchangeMismatch, WhatDecidesNothingIsNot) {
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.norms = false; }), Each(""));
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.feedback = "none"; }), Each(""));
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.method = "scatter-reduce"; }), Each(""));
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.grouping = Grouping::kTensor; }), Each(""));
}

TEST(ExchangeMismatch, TensorsAreCompared) {
  Side2 odd;
  odd.model[3].shape = {5, 7};
  EXPECT_THAT(told({}, odd, ErrorCode::kMismatch),
              Each(HasSubstr("'tensor embedding 5x7 embedding' on rank 2, 'tensor embedding 7x5 "
                             "embedding' on rank 0")));
  odd = {};
  odd.model[3].kind = TensorKind::kLinear;
  EXPECT_THAT(told({}, odd, ErrorCode::kMismatch), Each(HasSubstr("tensor embedding 7x5 linear")));
  odd = {};
  odd.model[3].name = "emb";
  EXPECT_THAT(told({}, odd, ErrorCode::kMismatch), Each(HasSubstr("tensor emb 7x5")));
  odd = {};
  odd.model.pop_back();
  EXPECT_THAT(told({}, odd, ErrorCode::kMismatch),
              Each(HasSubstr("nothing more on rank 2, 'tensor linear.bias 40 bias' on rank 0")));
}

TEST(ExchangeMismatch, AMistakeOnOneRankIsToldToAll) {
  EXPECT_THAT(options_differ([](ExchangeOptions& o) { o.codec = "fp23"; }),
              Each(HasSubstr("'codec fp23' on rank 2, 'codec fp32' on rank 0")));
}

TEST(ExchangeMismatch, TheSameMistakeOnAllRanksIsToldWithTheChoices) {
  all_codecs();
  const auto same = [](const ExchangeOptions& options, ErrorCode code) {
    return told({.options = options}, {.options = options}, code);
  };
  EXPECT_THAT(same({.codec = "fp23"}, ErrorCode::kUnknownName),
              Each(AllOf(HasSubstr("unknown codec 'fp23'"), HasSubstr("fp32, "))));
  EXPECT_THAT(same({.feedback = "redisual"}, ErrorCode::kUnknownName),
              Each(HasSubstr("did you mean 'residual'? (auto: the codec's own)")));
  EXPECT_THAT(same({.method = "ring"}, ErrorCode::kUnknownName),
              Each(HasSubstr("unknown method 'ring'; known: auto, dense, scatter-reduce, gather, "
                             "sparse-reduce, low-rank, shared-index, library")));
  EXPECT_THAT(same({.method = "sparse_reduce"}, ErrorCode::kUnknownName),
              Each(HasSubstr("; did you mean 'sparse-reduce'?")));
  EXPECT_THAT(
      same({.codec = "topk:density=warmup(0.1;4)", .steps_per_epoch = 0}, ErrorCode::kBadOption),
      Each(HasSubstr("counts in epochs: give steps_per_epoch")));
  EXPECT_THAT(same({.codec = "adacomp", .method = "dense"}, ErrorCode::kUnsupported),
              Each(HasSubstr("cannot add payloads of codec 'adacomp'; use gather")));
  EXPECT_THAT(
      same({.codec = "adacomp", .method = "scatter-reduce"}, ErrorCode::kUnsupported),
      Each(HasSubstr("cannot cut into blocks the payloads of codec 'adacomp'; use gather")));
  EXPECT_THAT(same({.codec = "adacomp", .method = "sparse-reduce"}, ErrorCode::kUnsupported),
              Each(HasSubstr("cannot list what is kept by codec 'adacomp'; use gather")));
  EXPECT_THAT(same({.codec = "int8", .method = "low-rank"}, ErrorCode::kUnsupported),
              Each(HasSubstr("finds no factors to agree on in codec 'int8'; use scatter-reduce")));
  EXPECT_THAT(
      same({.codec = "test-factors", .method = "shared-index"}, ErrorCode::kUnsupported),
      Each(HasSubstr("finds no positions to agree on in codec 'test-factors'; use low-rank")));
  EXPECT_THAT(same({.codec = "test-leader", .method = "dense"}, ErrorCode::kUnsupported),
              Each(HasSubstr("cannot add payloads of codec 'test-leader'; use shared-index")));
  EXPECT_THAT(same({.codec = "fp16", .method = "library"}, ErrorCode::kUnsupported),
              Each(HasSubstr("carries fp32 only")));
}

TEST(ExchangeMismatch, TwoTensorsOfOneNameAreRefused) {
  const Side2 twice{.model = {{"w", {1}, TensorKind::kLinear}, {"w", {2}, TensorKind::kLinear}}};
  EXPECT_THAT(told(twice, twice, ErrorCode::kContract),
              Each(HasSubstr("two tensors are named 'w'")));
}

// A store whose state does not fit is only known to its own rank.
TEST(ExchangeMismatch, AStateThatDoesNotFitOnOneRankStopsAll) {
  std::vector<std::string> messages(3);
  run_local(3, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const std::vector<TensorSpec> model = {{"w", {10}, TensorKind::kLinear}};
    Store store;
    if (rank == 1) {
      const Values wrong(7);
      StateArray array = make_state("w/feedback/residual", wrong, OnResize::kOwedToMean);
      ASSERT_TRUE(store.load({3, {array}}, group.rank(), 3).is_ok());
    }
    try {
      make_exchange(group, store, model, {.codec = "fp16", .feedback = "residual"});
    } catch (const Error& error) {
      messages[rank] = error.what();
    }
  });
  EXPECT_THAT(messages[1], HasSubstr("residual"));
  EXPECT_THAT(messages[0], HasSubstr("could not be made on rank 1"));
  EXPECT_THAT(messages[2], HasSubstr("could not be made on rank 1"));
}

}  // namespace
}  // namespace thinwire::testing
