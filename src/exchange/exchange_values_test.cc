// What an exchange computes: the mean that a loop over ranks gives, to the bit, on every rank.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "exchange/exchange_oracle.h"
#include "exchange/exchange_testing.h"

namespace thinwire::testing {
namespace {

constexpr uint64_t kSteps = 4;

struct Outcome {
  std::vector<std::vector<Tensors>> means;  // [step][rank]
  std::vector<StreamSpec> streams;
  std::vector<StateArrays> states;  // by rank
};

Outcome exchange_all(int ranks, const ExchangeOptions& options, uint64_t steps = kSteps) {
  Outcome result;
  result.means.assign(steps, std::vector<Tensors>(static_cast<size_t>(ranks)));
  result.states.resize(static_cast<size_t>(ranks));
  run_local(ranks, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    Side side(group, small_model(), options);
    for (uint64_t step = 0; step < steps; ++step) {
      const StepReport report = side.step(step);
      EXPECT_FALSE(report.skipped);
      EXPECT_EQ(report.step, step);
      result.means[step][rank] = side.values;
    }
    result.states[rank] = side.store().save();
    if (rank == 0) result.streams = side.exchange().streams();
  });
  return result;
}

void expect_oracle(const Outcome& result, int ranks, const std::string& codec,
                   const std::string& feedback, bool dense) {
  Oracle oracle(ranks, small_model(), result.streams, codec, feedback, dense);
  for (uint64_t step = 0; step < result.means.size(); ++step) {
    const Tensors expected = oracle.step(step, all_gradients(small_model(), ranks, step));
    for (size_t rank = 0; rank < result.means[step].size(); ++rank)
      EXPECT_TRUE(same_bits(result.means[step][rank], expected))
          << codec << ", " << ranks << " ranks: rank " << rank << ", step " << step;
  }
}

class Ranks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Local, Ranks, ::testing::Range(1, 10));

TEST_P(Ranks, DenseIsTheSumInRankOrderTimesOneOverN) {
  const int n = GetParam();
  const Outcome result = exchange_all(n, {.codec = "fp32"});
  const auto model = small_model();
  for (uint64_t step = 0; step < kSteps; ++step) {
    const auto given = all_gradients(model, n, step);
    Tensors mean = given[0];
    for (size_t t = 0; t < model.size(); ++t)
      for (size_t i = 0; i < mean[t].size(); ++i) {
        for (size_t rank = 1; rank < given.size(); ++rank) mean[t][i] += given[rank][t][i];
        mean[t][i] *= 1.0f / static_cast<float>(n);
      }
    for (const Tensors& values : result.means[step]) EXPECT_TRUE(same_bits(values, mean));
  }
}

TEST_P(Ranks, EveryCodecThroughEveryMethodMatchesTheOracle) {
  for (const CodecEntry* entry : list_codecs()) {
    const CodecInfo& info = entry->info;
    const std::string codec(info.name);
    const std::string memory = info.unbiased ? "none" : "residual";
    expect_oracle(exchange_all(GetParam(), {.codec = codec, .method = "gather"}), GetParam(), codec,
                  memory, false);
    if (info.linear && info.fixed_size)
      expect_oracle(exchange_all(GetParam(), {.codec = codec, .method = "dense"}), GetParam(),
                    codec, memory, true);
  }
}

TEST_P(Ranks, OtherFeedbackAndGroupingMatchTheOracle) {
  for (const CodecEntry* entry : list_codecs())
    for (const Grouping grouping : {Grouping::kModel, Grouping::kTensor})
      for (const std::string feedback : {"none", "residual"}) {
        const std::string codec(entry->info.name);
        const bool dense = entry->info.linear && entry->info.fixed_size;
        expect_oracle(
            exchange_all(GetParam(), {.codec = codec, .feedback = feedback, .grouping = grouping}),
            GetParam(), codec, feedback, dense);
      }
}

TEST_P(Ranks, LibraryIsCloseToDense) {
  const Outcome dense = exchange_all(GetParam(), {.codec = "fp32"});
  const Outcome library = exchange_all(GetParam(), {.codec = "fp32", .method = "library"});
  for (uint64_t step = 0; step < kSteps; ++step)
    for (size_t t = 0; t < small_model().size(); ++t)
      for (size_t i = 0; i < dense.means[step][0][t].size(); ++i)
        EXPECT_NEAR(library.means[step][0][t][i], dense.means[step][0][t][i], 1e-7f);
}

// What was sent so far plus what is still remembered is what was given: nothing is lost on the way.
TEST_P(Ranks, MeansAndResidualsAddUpToTheGradients) {
  const int n = GetParam();
  const auto model = small_model();
  for (const CodecEntry* entry : list_codecs()) {
    const Outcome result = exchange_all(n, {.codec = std::string(entry->info.name),
                                            .feedback = "residual",
                                            .method = "gather",
                                            .grouping = Grouping::kModel});
    std::vector<std::vector<Tensors>> given;  // [step][rank]
    for (uint64_t step = 0; step < kSteps; ++step) given.push_back(all_gradients(model, n, step));
    std::vector<double> owed;
    double largest = 0;
    for (size_t t = 0; t < model.size(); ++t)
      for (size_t i = 0; i < model[t].count(); ++i) {
        double sum = 0;
        for (uint64_t step = 0; step < kSteps; ++step) {
          for (const Tensors& of_rank : given[step]) sum += of_rank[t][i] / static_cast<double>(n);
          sum -= result.means[step][0][t][i];
        }
        owed.push_back(sum);
        largest = std::max(largest, std::abs(sum));
      }
    std::vector<double> kept(owed.size());
    for (const StateArrays& state : result.states)
      for (const StateArray& array : state) {
        if (array.name != "model/feedback/residual") continue;
        Values residual(owed.size());
        ASSERT_TRUE(copy_state({array}, array.name, residual).is_ok());
        for (size_t i = 0; i < kept.size(); ++i) kept[i] += residual[i] / static_cast<double>(n);
      }
    // Magnitudes are about 0.01; a few roundings in fp32 each step.
    for (size_t i = 0; i < owed.size(); ++i)
      EXPECT_NEAR(owed[i], kept[i], 3e-8) << entry->info.name << " value " << i;
    EXPECT_EQ(largest > 1e-7, !entry->info.lossless) << "whether there is a residual to see";
  }
}

TEST(ExchangeValues, OneRankWithFp32GetsBackItsBits) {
  run_local(1, [](Group& group) {
    Side side(group, {{"w", {4}, TensorKind::kLinear}}, {.codec = "fp32"});
    side.values = {{-0.0f, 0.0f, 1e-45f, -3.4e38f}};
    const Tensors given = side.values;
    side.start(0);
    side.exchange().finish();
    EXPECT_TRUE(same_bits(side.values, given));
  });
}

TEST(ExchangeValues, BucketSizeChangesNothing) {
  for (const CodecEntry* entry : list_codecs()) {
    ExchangeOptions options{.codec = std::string(entry->info.name)};
    const Outcome expected = exchange_all(3, options);
    for (const size_t bytes : {0, 1, 100, 400, 1000, 4000, 5000}) {
      options.bucket_bytes = bytes;
      const Outcome other = exchange_all(3, options);
      for (uint64_t step = 0; step < kSteps; ++step)
        EXPECT_TRUE(same_bits(other.means[step][2], expected.means[step][0]))
            << entry->info.name << ", buckets of " << bytes;
      for (size_t rank = 0; rank < 3; ++rank)
        EXPECT_TRUE(same_state(other.states[rank], expected.states[rank])) << entry->info.name;
    }
  }
}

TEST(ExchangeValues, Bfloat16TensorsAreConvertedBothWays) {
  run_local(2, [](Group& group) {
    Store store;
    const auto exchange = make_exchange(group, store, {{"w", {3}, TensorKind::kLinear}}, {});
    // 1, 2, -4 on rank 0 and 2, 2, 0 on rank 1, as the upper halves of their fp32.
    std::vector<uint16_t> bits = group.rank() == 0 ? std::vector<uint16_t>{0x3F80, 0x4000, 0xC080}
                                                   : std::vector<uint16_t>{0x4000, 0x4000, 0x0000};
    exchange->start(0, {.data = bits.data(), .count = 3, .dtype = DType::kBFloat16});
    exchange->finish();
    EXPECT_EQ(bits, (std::vector<uint16_t>{0x3FC0, 0x4000, 0xC000}));  // 1.5, 2, -2
  });
}

}  // namespace
}  // namespace thinwire::testing
