// Tests of shared-index: positions are the same on all ranks, sums of parts are parts of sums,
// and one rank gives topk.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

constexpr size_t kCount = 4000;
const std::vector<TensorSpec> kModel = {{"w", {kCount}, TensorKind::kLinear}};

TEST(SharedIndex, IsWhatCodecsOfAgreedPositionsGetByDefault) {
  EXPECT_EQ(terms_of({.codec = "scalecom"}).method->name, "shared-index");
  EXPECT_EQ(terms_of({.codec = "scalecom"}).feedback, "lowpass");
  EXPECT_EQ(terms_of({.codec = "lgc"}).method->name, "shared-index");
  EXPECT_EQ(terms_of({.codec = "lgc"}).feedback, "residual");
  EXPECT_EQ(terms_of({.codec = "randomk"}).method->name, "shared-index");
  EXPECT_EQ(terms_of({.codec = "randomk:shared=false"}).method->name, "gather");
}

TEST(SharedIndex, ScalecomAloneIsTopk) {
  run_local(1, [](Group& group) {
    Side scalecom(group, kModel, {.codec = "scalecom", .feedback = "residual"});
    Side topk(group, kModel, {.codec = "topk", .feedback = "residual"});
    for (uint64_t step = 0; step < 5; ++step) {
      scalecom.step(step);
      topk.step(step);
      EXPECT_TRUE(same_bits(scalecom.values, topk.values));
    }
    EXPECT_TRUE(same_state(scalecom.store().save(), topk.store().save()));
  });
}

// Every rank's values of a step, as its encoder was given them; leaders take turns.
TEST(SharedIndex, AllSendTheLeadersPositionsAndTheirMean) {
  for (const std::string feedback : {"residual", "lowpass:beta=0.3"}) {
    constexpr int kRanks = 3;
    constexpr uint64_t kSteps = 5;
    std::vector<std::vector<Values>> signals(kRanks);
    std::vector<std::vector<Values>> means(kRanks);
    run_local(kRanks, [&](Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      ExchangeOptions options{.codec = "scalecom:density=0.05", .feedback = feedback};
      options.observe = [&](const StreamSpec&, const Signal& signal, const Call&) {
        signals[rank].emplace_back(signal.values.begin(), signal.values.end());
      };
      Side side(group, kModel, options);
      for (uint64_t step = 0; step < kSteps; ++step) {
        side.step(step);
        means[rank].push_back(side.values[0]);
      }
    });
    for (uint64_t step = 0; step < kSteps; ++step) {
      const Values& leader = signals[step % kRanks][step];
      std::vector<float> magnitudes;
      for (const float value : leader) magnitudes.push_back(std::abs(value));
      std::nth_element(magnitudes.begin(), magnitudes.begin() + kCount / 20, magnitudes.end(),
                       std::greater<>());
      const float above = magnitudes[kCount / 20];
      for (size_t i = 0; i < kCount; ++i) {
        float sum = signals[0][step][i];
        for (size_t r = 1; r < kRanks; ++r) sum += signals[r][step][i];
        const bool sent = std::abs(leader[i]) > above;
        for (const auto& of_rank : means)
          ASSERT_EQ(of_rank[step][i], sent ? sum * (1.0f / kRanks) : 0.0f) << step << " " << i;
      }
    }
  }
}

// All ranks train the same matrix while values are sent, and none while codes are. A state that is
// loaded goes on with the same bits.
TEST(SharedIndex, LgcTrainsAlikeAndKeepsItsMatrixWhenCodesBegin) {
  constexpr int kRanks = 3;
  std::vector<std::vector<std::vector<std::byte>>> matrices(kRanks);
  run_local(kRanks, [&](Group& group) {
    const std::string lgc = "lgc:density=0.2,block=8,order=8";
    const ExchangeOptions options{.codec = lgc + ",train=true | 4steps: " + lgc};
    auto& mine = matrices[static_cast<size_t>(group.rank())];
    Side side(group, kModel, options);
    uint64_t values = 0, codes = 0;  // bytes
    StateArrays at_five;
    for (uint64_t step = 0; step < 8; ++step) {
      if (step == 5) at_five = side.store().save();
      (step < 4 ? values : codes) += side.step(step).sent_bytes;
      for (const StateArray& array : side.store().save())
        if (array.name == "w/encoder/matrix") mine.push_back(array.data);
    }
    EXPECT_LT(5 * codes, 2 * values);
    ExchangeOptions again = options;
    again.first_step = 5;
    const auto store = std::make_shared<Store>();
    const std::vector<StateArrays> of_all(kRanks, at_five);  // this rank takes its own
    ASSERT_TRUE(store->load(of_all, group.rank(), kRanks));
    Side resumed(group, kModel, again, store);
    resumed.exchange().set_step(5);
    for (uint64_t step = 5; step < 8; ++step) resumed.step(step);
    EXPECT_TRUE(same_bits(resumed.values, side.values));
    EXPECT_TRUE(same_state(resumed.store().save(), side.store().save()));
  });
  for (const auto& of_rank : matrices) {
    ASSERT_EQ(of_rank.size(), 8u);
    EXPECT_EQ(of_rank, matrices[0]);
  }
  for (size_t step = 1; step < 8; ++step)
    EXPECT_EQ(matrices[0][step] == matrices[0][step - 1], step >= 4) << step;
}

TEST(SharedIndex, LowpassAtBetaOneIsTheResidual) {
  run_local(3, [](Group& group) {
    Side lowpass(group, kModel, {.codec = "scalecom", .feedback = "lowpass:beta=1"});
    Side residual(group, kModel, {.codec = "scalecom", .feedback = "residual"});
    for (uint64_t step = 0; step < 4; ++step) {
      lowpass.step(step);
      residual.step(step);
      EXPECT_TRUE(same_bits(lowpass.values, residual.values));
    }
  });
}

// Nothing of positions on the wire: the values of the mean and a frame each way.
TEST(SharedIndex, RandomkSendsValuesOnly) {
  for (const uint64_t n : {2, 3, 8, 16})
    run_local(static_cast<int>(n), [&](Group& group) {
      Side side(group, {{"w", {2400 * n}, TensorKind::kLinear}}, {.codec = "randomk:density=0.1"});
      const StepReport report = side.step(0);
      uint64_t rounds = 0;
      while (uint64_t{1} << rounds < n) ++rounds;
      EXPECT_EQ(report.sent_bytes, 2 * (n - 1) * (4 * 240 + 48) + 16 * rounds);
      EXPECT_EQ(report.streams[0].kept, 240 * n);
    });
}

// The same positions and, up to the order of additions, the same means as gathered payloads give.
TEST(SharedIndex, RandomkIsCloseToItsGatheredForm) {
  for (const std::string codec : {"randomk:density=0.1", "randomk:density=0.1,scaled=true",
                                  "randomk:density=0.1,values=fp16"})
    run_local(3, [&](Group& group) {
      Side shared(group, kModel, {.codec = codec});
      Side gathered(group, kModel, {.codec = codec, .method = "gather"});
      for (uint64_t step = 0; step < 3; ++step) {
        shared.step(step);
        gathered.step(step);
        for (size_t i = 0; i < kCount; ++i)
          ASSERT_NEAR(shared.values[0][i], gathered.values[0][i],
                      codec.find("fp16") == std::string::npos ? 1e-7 : 1e-4)
              << codec;
      }
    });
}

}  // namespace
}  // namespace thinwire::testing
