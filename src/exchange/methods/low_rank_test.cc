// Tests of PowerSGD between ranks: the mean at full rank, equal bits, residuals, and bytes.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "exchange/testing/exchange_testing.h"
#include "thinwire/frame.h"

namespace thinwire::testing {
namespace {

const std::vector<TensorSpec> kModel = {{"v", {24, 2, 5, 5}, TensorKind::kConvolution},
                                        {"w", {40, 60}, TensorKind::kLinear},
                                        {"b", {40}, TensorKind::kBias}};

// The mean that ranks have after each of some steps; the same bits on all of them.
std::vector<Tensors> means(int ranks, const ExchangeOptions& options, uint64_t steps) {
  std::vector<std::vector<Tensors>> all(static_cast<size_t>(ranks));
  run_local(ranks, [&](Group& group) {
    Side side(group, kModel, options);
    for (uint64_t step = 0; step < steps; ++step) {
      EXPECT_FALSE(side.step(step).skipped);
      all[static_cast<size_t>(group.rank())].push_back(side.values);
    }
  });
  for (const auto& of_rank : all)
    for (uint64_t step = 0; step < steps; ++step)
      EXPECT_TRUE(same_bits(of_rank[step], all[0][step])) << step;
  return all[0];
}

TEST(LowRank, FullRankIsTheMean) {
  for (const int ranks : {1, 2, 3, 5}) {
    const auto got = means(ranks, {.codec = "powersgd:rank=50,min_compression=0"}, 3);
    for (uint64_t step = 0; step < 3; ++step) {
      const auto given = all_gradients(kModel, ranks, step);
      for (size_t t = 0; t < kModel.size(); ++t)
        for (size_t i = 0; i < got[step][t].size(); ++i) {
          double mean = 0;
          for (const Tensors& of_rank : given) mean += double{of_rank[t][i]} / ranks;
          ASSERT_NEAR(got[step][t][i], mean, 3e-7) << ranks << " ranks, tensor " << t;
        }
    }
  }
}

TEST(LowRank, RanksHaveTheSameBitsInEveryForm) {
  for (const std::string codec : {"powersgd", "powersgd:rank=4,alternate=true",
                                  "powersgd:rank=1,warm_start=false", "powersgd:rank=3"})
    for (const int ranks : {2, 3, 4}) means(ranks, {.codec = codec}, 4);
}

// Alone, rounds of one rank are no other than none at all.
TEST(LowRank, OneRankGetsWhatItsEncoderWrites) {
  for (const std::string codec : {"powersgd", "powersgd:alternate=true"}) {
    const auto agreed = means(1, {.codec = codec}, 3);
    const auto gathered = means(1, {.codec = codec, .method = "gather"}, 3);
    for (uint64_t step = 0; step < 3; ++step)
      EXPECT_TRUE(same_bits(agreed[step], gathered[step])) << codec << " " << step;
  }
}

// The residual stays when the rank changes; factors of another rank do not.
TEST(LowRank, AnotherRankKeepsWhatIsOwed) {
  run_local(2, [](Group& group) {
    Side side(group, kModel, {.codec = "powersgd:rank=table(1;3@3)"});
    Values residual(2400), after(2400);
    for (uint64_t step = 0; step < 3; ++step) side.step(step);
    const StateArrays saved = side.store().save();  // the change is made already
    ASSERT_TRUE(copy_state(saved, "w/feedback/residual", std::span(residual)).is_ok());
    EXPECT_GT(std::abs(residual[0]), 0);
    Values factor(3 * 60, 1.0f);
    ASSERT_TRUE(copy_state(saved, "w/encoder/q", std::span(factor)).is_ok());
    EXPECT_EQ(factor, Values(3 * 60));
    EXPECT_FALSE(side.step(3).skipped);
  });
}

// Bytes per step as docs/collectives.md has them: 2 (n-1) (4 f / n + F) for each round of f floats.
class LowRankBytes : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, LowRankBytes, ::testing::Values(2, 4, 8, 16));

TEST_P(LowRankBytes, AreThoseOfTheFactors) {
  const uint64_t n = GetParam();
  const std::vector<TensorSpec> model = {{"v", {64, 3, 5, 5}, TensorKind::kConvolution},  // 64 x 75
                                         {"w", {80, 96}, TensorKind::kLinear},
                                         {"b", {80}, TensorKind::kBias}};
  const uint64_t agreement = 16 * static_cast<uint64_t>(std::lround(std::log2(n)));
  const auto round = [&](uint64_t floats) {
    uint64_t most = 0, sum = 0;  // rank 0 owns floor(floats / n)
    for (uint64_t j = 0; j < n; ++j) {
      const uint64_t shard = 4 * (floats * (j + 1) / n - floats * j / n) + kFrameHeaderSize;
      sum += j == 0 ? (n - 1) * shard : shard;
      most = std::max(most, shard);
    }
    EXPECT_LE(sum, 2 * (n - 1) * most);
    return sum;
  };
  for (const uint64_t rank : {1, 2, 4})
    for (const bool alternate : {false, true})
      run_local(static_cast<int>(n), [&](Group& group) {
        Side side(group, model,
                  {.codec = "powersgd:rank=" + std::to_string(rank) +
                            ",alternate=" + (alternate ? "true" : "false")});
        for (uint64_t step = 0; step < 2; ++step) {
          const StepReport report = side.step(step);
          const uint64_t p = round(rank * (64 + 80) + 80), q = round(rank * (75 + 96));
          const uint64_t q_alone = round(rank * (75 + 96) + 80);
          if (group.rank() != 0) continue;
          EXPECT_EQ(report.sent_bytes, agreement + (!alternate      ? p + q
                                                    : step % 2 == 0 ? p
                                                                    : q_alone))
              << n << " ranks, rank " << rank;
          uint64_t offered = 0;
          for (const StreamCounters& stream : report.streams) offered += stream.payload_bytes;
          const uint64_t floats = !alternate      ? rank * (64 + 75 + 80 + 96)
                                  : step % 2 == 0 ? rank * (64 + 80)
                                                  : rank * (75 + 96);
          EXPECT_EQ(offered, 4 * (floats + 80));
        }
      });
}

}  // namespace
}  // namespace thinwire::testing
