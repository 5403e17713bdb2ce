// Tests of results as shards: every rank has the mean of what it owns, for half the bytes.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_oracle.h"
#include "exchange/testing/exchange_testing.h"
#include "multirank/ranks.h"
#include "thinwire/frame.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

class ExchangeShards : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeShards, ::testing::ValuesIn(rank_counts()),
                         ::testing::PrintToStringParamName());

// Chunks of 8 values are more than a window, so that owners have to say how far they are.
std::vector<ExchangeOptions> all_options(int ranks) {
  std::vector<ExchangeOptions> all;
  for (ExchangeOptions options : codecs_and_methods(ranks))
    for (const size_t chunk_values : {8, 120}) {
      if (options.method != "dense" && options.method != "scatter-reduce") continue;
      if (terms_of(options).feedback == "ef21") continue;
      options.results = Results::kShard;
      options.bucket_bytes = 10 * chunk_values;
      options.chunk_values = chunk_values;
      all.push_back(options);
      options.feedback = "residual";
      all.push_back(options);
    }
  return all;
}

// Whether a rank has what `mean` says of the values that it owns.
bool has_its_shard(Exchange& exchange, int rank, const Tensors& values, const Tensors& mean) {
  for (const OwnedRange& range : exchange.owned(rank))
    for (size_t i = range.begin; i < range.begin + range.count; ++i)
      if (std::memcmp(&values[range.tensor][i], &mean[range.tensor][i], sizeof(float)) != 0)
        return false;
  return true;
}

TEST_P(ExchangeShards, EveryOwnerHasTheMeanOfItsValues) {
  for (const ExchangeOptions& options : all_options(GetParam()))
    on_all([&](Group& group) {
      Side side(group, small_model(), options);
      Oracle oracle(group.size(), small_model(), side.exchange().streams(), options.codec,
                    terms_of(options).feedback, terms_of(options).method->name);
      oracle.leave_shards();
      for (const StreamSpec& stream : side.exchange().streams())
        EXPECT_FALSE(side.store().holds(stream.name + "/owner"));  // nothing is lost there
      for (uint64_t step = 0; step < 4; ++step) {
        EXPECT_FALSE(side.step(step).skipped);
        const Tensors mean = oracle.step(step, all_gradients(small_model(), group.size(), step));
        EXPECT_TRUE(has_its_shard(side.exchange(), group.rank(), side.values, mean))
            << options.codec << " " << options.method << ", rank " << group.rank() << ", step "
            << step;
      }
    });
}

// Every rank owns what it is told to, of weights, biases and norms.
TEST_P(ExchangeShards, OwnersMayBeNamed) {
  std::vector<int> owners;
  for (size_t i = 0; i < small_model().size(); ++i)
    owners.push_back(static_cast<int>(i * 5 / 3) % GetParam());
  for (ExchangeOptions options : all_options(GetParam())) {
    if (terms_of(options).grouping != Grouping::kTensor) continue;
    options.owners = owners;
    on_all([&](Group& group) {
      Side side(group, small_model(), options);
      size_t values = 0;
      for (int rank = 0; rank < group.size(); ++rank)
        for (const OwnedRange& range : side.exchange().owned(rank)) {
          EXPECT_EQ(owners[range.tensor], rank);
          EXPECT_EQ(range.count, small_model()[range.tensor].count());
          values += range.count;
        }
      size_t all = 0;
      for (const TensorSpec& tensor : small_model()) all += tensor.count();
      EXPECT_EQ(values, all);
      for (uint64_t step = 0; step < 2; ++step) EXPECT_FALSE(side.step(step).skipped);
    });
  }
}

// To the bit, with a codec that loses nothing.
TEST_P(ExchangeShards, NamedOwnersHaveTheMean) {
  std::vector<int> owners;
  for (size_t i = 0; i < small_model().size(); ++i)
    owners.push_back(static_cast<int>(i) % GetParam());
  for (const std::string method : {"dense", "scatter-reduce"})
    on_all([&](Group& group) {
      Side side(group, small_model(),
                {.method = method,
                 .results = Results::kShard,
                 .owners = owners,
                 .bucket_bytes = 900,
                 .chunk_values = 100});
      const StepReport report = side.step(1);
      const auto all = all_gradients(small_model(), group.size(), 1);
      for (size_t tensor = 0; tensor < owners.size(); ++tensor) {
        if (owners[tensor] != group.rank()) continue;
        for (size_t i = 0; i < side.values[tensor].size(); ++i) {
          float sum = -0.0f;
          for (const Tensors& one : all) sum += one[tensor][i];
          EXPECT_EQ(side.values[tensor][i], sum * (1.0f / static_cast<float>(group.size())));
        }
      }
      EXPECT_EQ(report.sent_bytes == 0, group.size() == 1);
    });
}

TEST_P(ExchangeShards, OwnersThatCannotBeAreRefused) {
  on_all([&](Group& group) {
    const auto error = [&](ExchangeOptions options) {
      return error_of([&] { Side(group, small_model(), options); });
    };
    const std::vector<int> owners(small_model().size(), 0);
    EXPECT_THAT(error({.owners = owners}), HasSubstr("results = kShard"));
    EXPECT_THAT(error({.results = Results::kShard, .owners = owners, .grouping = Grouping::kModel}),
                HasSubstr("choose grouping tensor"));
    EXPECT_THAT(error({.results = Results::kShard, .owners = {0, 0}}), HasSubstr("2 owners for 9"));
    std::vector<int> strange = owners;
    strange[3] = group.size();
    EXPECT_THAT(error({.results = Results::kShard, .owners = strange}), HasSubstr("is to own"));
  });
}

TEST_P(ExchangeShards, ShardsOfAllRanksHoldEveryValueOnce) {
  for (const std::string method : {"dense", "scatter-reduce"})
    for (const Grouping grouping : {Grouping::kTensor, Grouping::kModel})
      on_all([&](Group& group) {
        Side side(group, small_model(),
                  {.codec = "fp16",
                   .method = method,
                   .results = Results::kShard,
                   .grouping = grouping,
                   .bucket_bytes = 900,
                   .chunk_values = 100});
        std::vector<std::vector<int>> seen;
        for (const TensorSpec& tensor : small_model()) seen.emplace_back(tensor.count());
        size_t least = SIZE_MAX, most = 0;
        for (int rank = 0; rank < group.size(); ++rank) {
          size_t total = 0, last = 0;
          for (const OwnedRange& range : side.exchange().owned(rank)) {
            EXPECT_GT(range.count, 0u);
            EXPECT_GE(range.tensor, last);
            last = range.tensor;
            total += range.count;
            for (size_t i = 0; i < range.count; ++i) ++seen[range.tensor].at(range.begin + i);
          }
          least = std::min(least, total);
          most = std::max(most, total);
        }
        for (const auto& counts : seen)
          EXPECT_TRUE(
              std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; }));
        EXPECT_LE(most - least, 60u) << method;  // of 1334 values
      });
}

TEST_P(ExchangeShards, SendOncePayloadLessTheOwnShard) {
  const auto n = static_cast<uint64_t>(GetParam());
  uint64_t agreement = 0;
  while (uint64_t{1} << agreement / 16 < n) agreement += 16;
  for (const std::string method : {"dense", "scatter-reduce"})
    for (const std::string codec : {"fp32", "fp16"})
      for (const uint64_t chunks : {1, 40}) {
        const uint64_t width = codec == "fp32" ? 4 : 2, share = 400, count = share * n;
        on_all([&](Group& group) {
          Side side(group, {{"w", {count}, TensorKind::kLinear}},
                    {.codec = codec,
                     .method = method,
                     .results = Results::kShard,
                     .chunk_values = share / chunks});
          side.step(0);
          const StepReport report = side.step(1);
          const uint64_t frames = method == "dense" ? 1 : chunks;
          // Window and half of one, as scatter_reduce.cc has them.
          const uint64_t window = std::max<uint64_t>(4, 32 / std::max<uint64_t>(1, n - 1)),
                         half = window / 2;
          const uint64_t words = frames <= window ? 0 : (frames - window + half - 1) / half;
          const uint64_t expected =
              (n - 1) * (width * share + frames * kFrameHeaderSize + 16 * words) + agreement;
          EXPECT_EQ(report.sent_bytes, expected) << method << " " << codec << ", chunks " << chunks;
          EXPECT_EQ(report.received_bytes, expected);
          EXPECT_EQ(report.dense_bytes, (n - 1) * 4 * count / n);
        });
      }
}

TEST_P(ExchangeShards, AFaultUndoesTheStepOnAllRanks) {
  for (const ExchangeOptions& options : all_options(GetParam()))
    on_all([&](Group& group) {
      Side side(group, small_model(), options);
      Side clean(group, small_model(), options);
      side.step(0);
      clean.step(0);
      const StateArrays before = side.store().save();
      side.values = gradients(small_model(), group.rank(), 1);
      if (group.rank() == 0) side.values[7].back() = std::numeric_limits<float>::infinity();
      for (size_t i = side.values.size(); i-- > 0;) side.start(i);
      const StepReport report = side.exchange().finish();
      EXPECT_TRUE(report.skipped);
      EXPECT_EQ(report.fault.rank, 0);
      EXPECT_TRUE(same_state(side.store().save(), before));
      for (const Values& values : side.values)
        for (const float value : values) EXPECT_EQ(value, 0);
      clean.exchange().set_step(2);
      side.step(2);
      clean.step(2);
      EXPECT_TRUE(has_its_shard(side.exchange(), group.rank(), side.values, clean.values))
          << options.codec;
    });
}

TEST_P(ExchangeShards, TheSumMayOverflowAlthoughNoRankDid) {
  if (GetParam() == 1) return;
  for (const std::string method : {"dense", "scatter-reduce"})
    on_all([&](Group& group) {
      Side side(group, {{"w", {50}, TensorKind::kLinear}},
                {.codec = "fp32", .method = method, .results = Results::kShard});
      side.values = {Values(50, 3e38f)};
      side.start(0);
      const StepReport report = side.exchange().finish();
      EXPECT_TRUE(report.skipped) << method;
      EXPECT_EQ(report.fault.code, ErrorCode::kNonFinite);
      EXPECT_EQ(report.fault.rank, -1);
      for (const float value : side.values[0]) EXPECT_EQ(value, 0);
    });
}

TEST_P(ExchangeShards, WeightsAndMediansGoWithThem) {
  on_all([](Group& group) {
    const auto n = static_cast<float>(group.size());
    Side side(group, {{"w", {50}, TensorKind::kLinear}},
              {.codec = "fp32", .weighted = true, .results = Results::kShard, .chunk_values = 4});
    side.exchange().set_weight(1 + group.rank());
    if (group.size() > 1 && group.rank() == 0) side.exchange().abstain(Abstention::kSitsOut);
    side.values = {Values(50, group.size() > 1 && group.rank() == 0 ? NAN : 6)};
    side.start(0);
    EXPECT_FALSE(side.exchange().finish().skipped);
    for (const OwnedRange& range : side.exchange().owned(group.rank()))
      for (size_t i = 0; i < range.count; ++i)
        EXPECT_NEAR(side.values[0][range.begin + i], 6, 1e-5f);

    Side median(group, {{"w", {50}, TensorKind::kLinear}},
                {.codec = "fp32", .combine = "median", .results = Results::kShard});
    median.values = {Values(50, static_cast<float>(group.rank()))};
    median.start(0);
    EXPECT_FALSE(median.exchange().finish().skipped);
    for (const OwnedRange& range : median.exchange().owned(group.rank()))
      EXPECT_EQ(median.values[0][range.begin], (n - 1) / 2);
  });
}

TEST_P(ExchangeShards, WhatCannotLeaveShardsSaysSo) {
  const auto why = [](ExchangeOptions options) {
    options.results = Results::kShard;
    const Status status = check_exchange(options);
    EXPECT_EQ(status.code(),
              options.method == "auto" && options.codec.find('|') != std::string::npos
                  ? ErrorCode::kBadOption
                  : ErrorCode::kUnsupported);
    return status.message();
  };
  EXPECT_THAT(why({.codec = "topk"}),
              HasSubstr("codec 'topk' leaves no shards: these go with scatter-reduce and dense"));
  EXPECT_THAT(why({.codec = "fp32", .method = "gather"}),
              HasSubstr("method gather leaves no shards; use scatter-reduce"));
  EXPECT_THAT(why({.codec = "fp16", .feedback = "ef21"}),
              HasSubstr("memory ef21 follows the whole mean"));
  EXPECT_THAT(why({.codec = "fp32 | 1: int8"}), HasSubstr("deal out shards differently"));
  on_all([](Group& group) {
    Side full(group, small_model(), {});
    EXPECT_THROW(full.exchange().owned(0), Error);
    Side shard(group, small_model(), {.results = Results::kShard});
    EXPECT_THROW(shard.exchange().owned(group.size()), Error);
    EXPECT_THROW(shard.exchange().owned(-1), Error);
  });
}

}  // namespace
}  // namespace thinwire::testing
