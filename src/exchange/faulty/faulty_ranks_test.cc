// Tests of exchanges that lose ranks for good: up to f of them, they go on; with one more they end.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/faulty/faulty_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/rule_oracles.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

const std::vector<TensorSpec> kModel{{"a", {30}, TensorKind::kLinear},
                                     {"b", {40, 25}, TensorKind::kLinear}};

ExchangeOptions by_gather(int f) {
  return {.codec = "fp32",
          .method = "gather",
          .combine = "trimmed_mean:f=" + std::to_string(f),
          .grouping = Grouping::kTensor,
          .bucket_bytes = 200};
}

// Of the first `ranks` ranks.
Row trimmed_mean_of(int ranks, size_t f, uint64_t step) {
  Rows rows;
  for (int rank = 0; rank < ranks; ++rank) {
    Row& row = rows.emplace_back();
    for (const Values& values : gradients(kModel, rank, step))
      row.insert(row.end(), values.begin(), values.end());
  }
  return trimmed_mean_oracle(rows, f);
}

// The last `lost` ranks leave one after another, each in the middle of a step.
void lose_ranks(int ranks, int f, int lost) {
  run_local(ranks, [&](Group& group) {
    Side side(group, kModel, by_gather(f));
    for (uint64_t step = 0; step < static_cast<uint64_t>(lost) + 3; ++step) {
      const int left = std::min(static_cast<int>(step), lost);
      if (group.rank() == ranks - 1 - static_cast<int>(step) && left < lost) {
        side.values = gradients(kModel, group.rank(), step);
        side.start(1);
        return;
      }
      const int gone = std::min(static_cast<int>(step) + 1, lost);
      const StepReport report = side.step(step);
      EXPECT_FALSE(report.skipped);
      ASSERT_EQ(report.left_out.size(), static_cast<size_t>(gone));
      EXPECT_EQ(report.left_out[0], (LeftOut{ranks - gone, LeftOutFor::kSilence}));
      const Row expected = trimmed_mean_of(ranks - gone, static_cast<size_t>(f - gone), step);
      size_t place = 0;
      for (const Values& values : side.values)
        for (const float value : values) ASSERT_NEAR(value, expected[place++], 1e-6);
    }
  });
}

TEST(FaultyRanks, AsManyRanksAsTheRuleToleratesMayBeLost) {
  const auto since = std::chrono::steady_clock::now();
  for (const int ranks : {3, 5, 9}) lose_ranks(ranks, (ranks - 1) / 2, (ranks - 1) / 2);
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::seconds(60));  // no deadline
}

TEST(FaultyRanks, OneMoreEndsTheRunAndNamesThem) {
  try {
    lose_ranks(5, 1, 2);
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_THAT(error.what(),
                HasSubstr("exchange: 2 ranks are lost, and the rule goes on without 1 at most: "));
    EXPECT_THAT(error.what(), HasSubstr("rank 3: local group: "));
    EXPECT_THAT(error.what(), HasSubstr("rank 4: local group: rank 4 left the group"));
  }
}

}  // namespace
}  // namespace thinwire::testing
