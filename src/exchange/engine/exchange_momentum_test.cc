// Tests of momentum in an exchange's memories, also for tensors that are sent uncompressed beside
// others.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr uint64_t kSteps = 6;

// What torch's SGD would step along after the mean gradient of a step, tensor by tensor.
class SgdOracle {
 public:
  explicit SgdOracle(const std::vector<TensorSpec>& model) : model_(model) {
    for (const TensorSpec& tensor : model) velocities_.emplace_back(tensor.count());
  }

  std::vector<std::vector<double>> step(uint64_t number, const std::vector<Momentum>& momenta) {
    const auto given = all_gradients(model_, kRanks, number);
    std::vector<std::vector<double>> along(model_.size());
    for (size_t t = 0; t < model_.size(); ++t)
      for (size_t i = 0; i < model_[t].count(); ++i) {
        double mean = 0;
        for (const Tensors& of_rank : given) mean += double{of_rank[t][i]} / kRanks;
        double& u = velocities_[t][i];
        u = momenta[t].momentum * u + (begun_ ? 1 - momenta[t].dampening : 1) * mean;
        along[t].push_back(momenta[t].nesterov ? mean + momenta[t].momentum * u : u);
      }
    begun_ = true;
    return along;
  }

 private:
  const std::vector<TensorSpec>& model_;
  std::vector<std::vector<double>> velocities_;
  bool begun_ = false;
};

void expect_near(const Tensors& means, const std::vector<std::vector<double>>& want) {
  for (size_t t = 0; t < means.size(); ++t)
    for (size_t i = 0; i < means[t].size(); ++i) ASSERT_NEAR(means[t][i], want[t][i], 2e-7) << t;
}

// Every one of two lossless ways, biases and norms included.
std::vector<ExchangeOptions> lossless() {
  std::vector<ExchangeOptions> all;
  for (const std::string memory : {"ahead", "dgc", "velocity"})
    for (const Grouping grouping : {Grouping::kTensor, Grouping::kModel})
      for (const std::string method : {"dense", "scatter-reduce", "gather", "library"}) {
        all.push_back(
            {.codec = "fp32", .feedback = memory, .method = method, .grouping = grouping});
        all.back().bucket_bytes = 600;
      }
  for (const std::string memory : {"ahead", "dgc"})
    for (const std::string method : {"gather", "sparse-reduce"})
      for (const Grouping grouping : {Grouping::kTensor, Grouping::kGlobal})
        all.push_back({.codec = "topk:density=1",
                       .feedback = memory,
                       .method = method,
                       .grouping = grouping});
  return all;
}

TEST(ExchangeMomentum, IsThatOfSgdWhereNothingIsLost) {
  for (const ExchangeOptions& options : lossless())
    run_local(kRanks, [&](Group& group) {
      SCOPED_TRACE(options.codec + " by " + options.method + ", " + options.feedback);
      const auto model = small_model();
      const std::vector<Momentum> momenta(model.size(), {.momentum = 0.9});
      SgdOracle oracle(model);
      Side side(group, model, options);
      for (uint64_t step = 0; step < kSteps; ++step) {
        side.step(step);
        expect_near(side.values, oracle.step(step, momenta));
      }
    });
}

TEST(ExchangeMomentum, TensorsHaveTheirOwnAndItMayChange) {
  for (const ExchangeOptions& options : lossless())
    run_local(kRanks, [&](Group& group) {
      const auto model = small_model();
      SgdOracle oracle(model);
      Side side(group, model, options);
      for (uint64_t step = 0; step < kSteps; ++step) {
        std::vector<Momentum> momenta(model.size());
        for (size_t t = 0; t < model.size(); ++t)
          momenta[t] = {.momentum = (step < 3 ? 0.9 : 0.5) / (1.0 + static_cast<double>(t % 3)),
                        .dampening = t % 4 == 1 ? 0.25 : 0,
                        .nesterov = t % 4 == 2};
        side.exchange().set_momentum(momenta);
        side.step(step);
        expect_near(side.values, oracle.step(step, momenta));
      }
    });
}

// With a sparse codec what travels uncompressed has its momentum all the same.
TEST(ExchangeMomentum, OfPlainTensorsDoesNotHangOnBuckets) {
  run_local(kRanks, [](Group& group) {
    const auto model = small_model();
    const std::vector<Momentum> momenta(model.size(), {.momentum = 0.9});
    SgdOracle oracle(model);
    ExchangeOptions options{.codec = "topk:density=0.1", .feedback = "ahead"};
    auto store = std::make_shared<Store>();
    for (uint64_t step = 0; step < kSteps; ++step) {
      options.bucket_bytes = step % 2 == 0 ? 600 : 1 << 20;  // other tensors side by side
      const StateArrays saved = store->save();
      store = std::make_shared<Store>();
      ASSERT_TRUE(store->load(std::vector<StateArrays>(kRanks, saved), group.rank(), kRanks));
      options.first_step = step;
      Side side(group, model, options, store);
      EXPECT_TRUE(store->unclaimed().empty());
      side.step(step);
      const auto want = oracle.step(step, momenta);
      for (const size_t t : {1, 2, 8})
        for (size_t i = 0; i < want[t].size(); ++i)
          ASSERT_NEAR(side.values[t][i], want[t][i], 2e-7);
    }
  });
}

TEST(ExchangeMomentum, OfPlainTensorsForgetsASkippedStep) {
  run_local(2, [](Group& group) {
    const ExchangeOptions options{.codec = "topk:density=0.1", .feedback = "dgc"};
    Side plain(group, small_model(), options), disturbed(group, small_model(), options);
    for (uint64_t step = 0; step < kSteps; ++step) {
      disturbed.values = gradients(small_model(), group.rank(), step + 100);
      if (group.rank() == 1) disturbed.values[3][1] = std::numeric_limits<float>::infinity();
      for (size_t i = disturbed.values.size(); i-- > 0;) disturbed.start(i);
      EXPECT_TRUE(disturbed.exchange().finish().skipped);
      disturbed.exchange().set_step(step);
      plain.step(step);
      disturbed.step(step);
      EXPECT_TRUE(same_bits(plain.values, disturbed.values));
    }
    EXPECT_TRUE(same_state(plain.store().save(), disturbed.store().save()));
  });
}

TEST(ExchangeMomentum, OutOfItsRangeIsRefusedAndChangesNothing) {
  run_local(2, [](Group& group) {
    Side side(group, small_model(), {.codec = "topk", .feedback = "ahead"});
    Side same(group, small_model(), {.codec = "topk", .feedback = "ahead"});
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const auto& [bad, said] :
         {std::pair(Momentum{.momentum = 1}, "the momentum of 'norm.weight' is 1; it is a number "),
          {Momentum{.momentum = -0.5}, "the momentum of 'norm.weight' is -0.5"},
          {Momentum{.momentum = nan}, "the momentum of 'norm.weight' is nan"},
          {Momentum{.momentum = 0.9, .dampening = 1.5}, "the dampening of 'norm.weight' is 1.5"}}) {
      std::vector<Momentum> momenta(small_model().size(), {.momentum = 0.5});
      momenta[2] = bad;
      try {
        side.exchange().set_momentum(momenta);
        ADD_FAILURE() << said;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kBadOption);
        EXPECT_THAT(error.what(), HasSubstr(said));
      }
    }
    side.step(0);
    same.step(0);
    EXPECT_TRUE(same_bits(side.values, same.values));
    const std::vector<Momentum> most(small_model().size(), {.momentum = 0.999999, .dampening = 1});
    side.exchange().set_momentum(most);
    EXPECT_FALSE(side.step(1).skipped);
  });
}

TEST(ExchangeMomentum, IsSetBetweenTwoStepsForEveryTensor) {
  run_local(1, [](Group& group) {
    Side side(group, small_model(), {.codec = "topk", .feedback = "dgc"});
    const std::vector<Momentum> momenta(small_model().size());
    side.exchange().set_momentum(momenta);
    EXPECT_THROW(side.exchange().set_momentum({}), Error);
    side.values = gradients(small_model(), 0, 0);
    side.start(8);
    try {
      side.exchange().set_momentum(momenta);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kContract);
      EXPECT_THAT(error.what(), HasSubstr("set_momentum while a step is under way"));
    }
    side.exchange().finish();
  });
}

}  // namespace
}  // namespace thinwire::testing
