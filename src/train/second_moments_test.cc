// Tests of second moments of ranks' own gradients: their definition, their state and their steps.
// SPDX-License-Identifier: Apache-2.0
#include "train/second_moments.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <vector>

#include "core/random.h"
#include "thinwire/group.h"
#include "thinwire/store.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

constexpr double kBeta2 = 0.99;

torch::Tensor gradient_of(const torch::Tensor& like, uint64_t step, int rank, size_t index) {
  const RandomKey key{.seed = 7,
                      .use = RandomUse::kTest,
                      .step = step,
                      .stream = static_cast<uint32_t>(index) * 16 + static_cast<uint32_t>(rank)};
  torch::Tensor values = torch::empty_like(like);
  for (int64_t i = 0; i < values.numel(); ++i)
    values.view(-1)[i] = random_normal(key, static_cast<uint64_t>(i));
  return values;
}

std::vector<torch::Tensor> zeros_of(const ToyNet& net) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& parameter : net.parameters())
    all.push_back(torch::zeros_like(parameter.detach()));
  return all;
}

void add_all(SecondMoments& moments, const ToyNet& net, uint64_t step, int rank) {
  const auto parameters = net.parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    moments.add(i, gradient_of(parameters[i].detach(), step, rank, i));
}

TEST(SecondMoments, AreTheirDefinitionOnEveryRank) {
  std::vector<std::vector<torch::Tensor>> got(3);
  run_local(3, [&](Group& group) {
    const ToyNet net;
    SecondMoments moments(trainable_parameters(net), kBeta2);
    for (uint64_t step = 0; step < 5; ++step) {
      add_all(moments, net, step, group.rank());
      moments.end_step(step != 2);  // which leaves no trace
    }
    auto& mine = got[static_cast<size_t>(group.rank())] = zeros_of(net);
    EXPECT_FALSE(moments.average(group, nullptr, mine).skipped);
  });
  const ToyNet net;
  const auto parameters = net.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor want = torch::zeros_like(parameters[i].detach());
    for (int rank = 0; rank < 3; ++rank) {
      torch::Tensor own = torch::zeros_like(want);
      for (const uint64_t step : {0, 1, 3, 4})
        own = kBeta2 * own + (1 - kBeta2) * gradient_of(want, step, rank, i).square();
      want += own / 3;
    }
    want /= std::sqrt(3.0) * (1 - std::pow(kBeta2, 4));
    EXPECT_TRUE(torch::allclose(got[0][i], want, 0.01, 0)) << i;
    EXPECT_TRUE(got[1][i].equal(got[0][i]));
    EXPECT_TRUE(got[2][i].equal(got[0][i]));
  }
}

TEST(SecondMoments, AreAveragedAfterEveryPowerOfTwoAndThenAfterEveryPeriod) {
  const ToyNet net;
  SecondMoments moments(trainable_parameters(net), kBeta2);
  EXPECT_FALSE(moments.due());
  std::vector<uint64_t> found;
  for (uint64_t step = 1; step <= 3 * SecondMoments::kPeriod; ++step) {
    moments.end_step(false);
    EXPECT_EQ(moments.due(), !found.empty() && found.back() == step - 1);
    moments.end_step(true);
    if (moments.due()) found.push_back(step);
  }
  std::vector<uint64_t> want;
  for (uint64_t step = 1; step < SecondMoments::kPeriod; step *= 2) want.push_back(step);
  for (uint64_t i = 1; i <= 3; ++i) want.push_back(i * SecondMoments::kPeriod);
  EXPECT_EQ(found, want);
}

TEST(SecondMoments, AreSavedAndAreTheMeanAtAnotherNumberOfRanks) {
  const ToyNet net;
  const auto open = [&](Store& store) -> SecondMoments& {
    return store.open<SecondMoments>("optimizer/second_moments", [&] {
      return std::make_unique<SecondMoments>(trainable_parameters(net), kBeta2);
    });
  };
  Store stores[2];
  for (int rank = 0; rank < 2; ++rank) {
    add_all(open(stores[rank]), net, 0, rank);
    open(stores[rank]).end_step(true);
    EXPECT_EQ(stores[rank].owed_norm(), 0);
  }
  Store one;
  ASSERT_TRUE(one.load({stores[0].save(), stores[1].save()}, 0, 1));
  EXPECT_TRUE(open(one).due());  // one step has counted
  run_local(1, [&](Group& group) {
    std::vector<torch::Tensor> mean = zeros_of(net);
    open(one).average(group, nullptr, mean);
    for (size_t i = 0; i < mean.size(); ++i) {
      const torch::Tensor want =
          (gradient_of(mean[i], 0, 0, i).square() + gradient_of(mean[i], 0, 1, i).square()) / 2;
      EXPECT_TRUE(torch::allclose(mean[i], want, 0.01, 0)) << i;
    }
  });
  StateArrays other = stores[0].save();
  std::erase_if(other, [](const StateArray& array) { return array.name.ends_with("output.bias"); });
  EXPECT_FALSE(open(one).load(other));
}

}  // namespace
}  // namespace thinwire
