// Tests of exchanges side by side: each is one of its column alone, and their steps count together.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/levels/column_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

// The shards of column 1 are shorter, and one of them is empty.
std::vector<TensorSpec> shards_of(int column) {
  std::vector<TensorSpec> model = small_model();
  if (column == 0) return model;
  for (TensorSpec& tensor : model)
    if (!tensor.shape.empty() && tensor.shape[0] > 1) tensor.shape[0] /= 2;
  model[3].shape[0] = 0;
  return model;
}

ExchangeOptions in_columns(const std::string& codec, int columns = 2) {
  return {.codec = codec, .feedback = "residual", .columns = columns};
}

struct Ran {
  std::vector<Tensors> means;  // by step
  StateArrays state;
  std::vector<StepReport> reports;
};

// `steps` steps of rank `of_column` of a column, whose gradients are those of its rank in the grid.
Ran run(Group& group, const ExchangeOptions& options, int column, int rank, uint64_t steps,
        const std::function<void(uint64_t, Tensors&)>& spoil = {}) {
  Ran ran;
  Store store;
  const std::vector<TensorSpec> model = shards_of(column);
  const auto exchange = make_exchange(group, store, model, options);
  for (uint64_t step = 0; step < steps; ++step) {
    Tensors values = gradients(model, rank, step);
    if (spoil) spoil(step, values);
    for (size_t i = model.size(); i-- > 0;)
      exchange->start(i, {.data = values[i].data(), .count = values[i].size()});
    ran.reports.push_back(exchange->finish());
    ran.means.push_back(values);
  }
  ran.state = store.save();
  return ran;
}

TEST(ColumnRunner, AColumnIsAnExchangeOfItsRanksAlone) {
  for (const char* codec : {"fp32", "int8", "topk:density=0.1", "powersgd:rank=2"}) {
    std::vector<Ran> together(6), alone(6);
    run_local(6, [&](Group& group) {
      const int rank = group.rank();
      together[static_cast<size_t>(rank)] = run(group, in_columns(codec), rank % 2, rank, 3);
      const auto column = group.split(rank % 2);
      alone[static_cast<size_t>(rank)] = run(*column, in_columns(codec, 1), rank % 2, rank, 3);
    });
    for (size_t rank = 0; rank < 6; ++rank) {
      for (size_t step = 0; step < 3; ++step)
        EXPECT_TRUE(same_bits(together[rank].means[step], alone[rank].means[step])) << codec;
      EXPECT_TRUE(same_state(together[rank].state, alone[rank].state)) << codec;
      EXPECT_EQ(together[rank].reports[2].participants, 3u);
      EXPECT_GT(together[rank].reports[2].sent_bytes, alone[rank].reports[2].sent_bytes - 64);
    }
  }
}

TEST(ColumnRunner, AFaultInOneColumnSkipsTheStepInAll) {
  std::vector<Ran> ran(4), without(4);
  run_local(4, [&](Group& group) {
    const int rank = group.rank();
    const auto spoil = [&](uint64_t step, Tensors& values) {
      if (step == 1 && rank == 3) values[7][5] = std::numeric_limits<float>::quiet_NaN();
    };
    const auto options = in_columns("topk:density=0.1");
    ran[static_cast<size_t>(rank)] = run(group, options, rank % 2, rank, 2, spoil);
    without[static_cast<size_t>(rank)] = run(group, options, rank % 2, rank, 1);
  });
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(ran[rank].reports[1].skipped);
    EXPECT_EQ(describe(ran[rank].reports[1].fault),
              "stream 'linear.weight' of rank 3 has a NaN or Inf");
    EXPECT_TRUE(same_state(ran[rank].state, without[rank].state)) << "rank " << rank;
    for (const Values& mean : ran[rank].means[1])
      for (const float value : mean) EXPECT_EQ(value, 0);
  }
}

TEST(ColumnRunner, OneRankThatAsksSkipsTheStepInAllColumns) {
  run_local(4, [&](Group& group) {
    Side side(group, small_model(), in_columns("int8"));
    if (group.rank() == 2) side.exchange().abstain(Abstention::kSkipsStep);
    const StepReport report = side.step(0);
    EXPECT_TRUE(report.skipped);
    EXPECT_EQ(describe(report.fault), "rank 2 asked to skip the step");
    EXPECT_FALSE(side.step(1).skipped);
  });
}

TEST(ColumnRunner, AChangeIsAgreedOnByAllColumns) {
  run_local(4, [&](Group& group) {
    Side side(group, shards_of(group.rank() % 2), in_columns("topk:density=0.1"));
    side.step(0);
    ExchangeOptions other = side.exchange().options();
    other.codec = group.rank() % 2 == 0 ? "int8" : "int4";
    EXPECT_THAT(error_of([&] { side.exchange().change(other); }), HasSubstr("do not agree"));
    other.codec = "int8";
    side.exchange().change(other);
    EXPECT_FALSE(side.step(1).skipped);
  });
}

TEST(ColumnRunner, MistakesAreToldToAllRanks) {
  run_local(4, [&](Group& group) {
    const auto error = [&](ExchangeOptions options, std::vector<TensorSpec> model) {
      return error_of([&] { Side(group, std::move(model), options); });
    };
    const ExchangeOptions fp32 = {.codec = "fp32", .columns = 2};
    EXPECT_THAT(error({.columns = 3}, small_model()), HasSubstr("choose one of 1, 2, 4"));
    EXPECT_THAT(error({.columns = 0}, small_model()), HasSubstr("at least 1"));
    EXPECT_THAT(error({.inside = 2, .columns = 2}, small_model()), HasSubstr("inside = 1"));
    EXPECT_THAT(error({.weighted = true, .columns = 2}, small_model()),
                HasSubstr("weighted = false"));
    EXPECT_THAT(error({.columns = 2, .results = Results::kShard}, small_model()),
                HasSubstr("full results"));
    EXPECT_THAT(error({.method = "gather", .combine = "krum:f=0", .columns = 2}, small_model()),
                HasSubstr("choose one of mean, "));
    // Rank 3 alone has another shape, in column 1; column 0 agrees, and hears of it.
    EXPECT_THAT(error(fp32, group.rank() == 3 ? shards_of(1) : small_model()),
                HasSubstr("a column: ranks do not agree"));
    std::vector<TensorSpec> renamed = small_model();
    renamed[0].name += group.rank() % 2 == 0 ? "" : ".other";
    EXPECT_THAT(error(fp32, renamed), HasSubstr("do not agree"));
  });
}

}  // namespace
}  // namespace thinwire::testing
