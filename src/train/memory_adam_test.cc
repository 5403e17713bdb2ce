// Tests of Adam whose first moment acts in the memory: against a plain loop, and what it refuses.
// SPDX-License-Identifier: Apache-2.0
#include "train/memory_adam.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

constexpr double kBeta1 = 0.9, kBeta2 = 0.99, kRate = 0.01, kEpsilon = 1e-8;

// Ten steps of `workers` ranks on one, where nothing is lost.
std::vector<torch::Tensor> plain_loop(uint64_t workers, double decay) {
  const auto net = std::make_shared<ToyNet>();
  const std::vector<torch::Tensor> weights = net->parameters();
  std::vector<torch::Tensor> first, given;
  std::vector<std::vector<torch::Tensor>> own(workers);
  for (const torch::Tensor& weight : weights) {
    given.push_back(torch::zeros_like(weight));
    for (auto& squares : own) squares.push_back(torch::zeros_like(weight));
  }
  const ToyData data(90);
  for (uint64_t step = 0; step < 10; ++step) {
    const auto order =
        random_permutation({.seed = 3, .use = RandomUse::kShuffle, .step = step / 5}, 90);
    const size_t begin = step % 5 * 20, size = std::min<size_t>(20, 90 - begin);
    std::vector<torch::Tensor> mean;
    for (const torch::Tensor& weight : weights) mean.push_back(torch::zeros_like(weight));
    for (uint64_t worker = 0; worker < workers; ++worker) {
      const size_t from = size * worker / workers, to = size * (worker + 1) / workers;
      const Batch batch = data.fetch(std::span(order).subspan(begin + from, to - from), {});
      net->zero_grad();
      const double weight = static_cast<double>((to - from) * workers) / static_cast<double>(size);
      (torch::nn::functional::cross_entropy(net->forward(batch.inputs), batch.targets) * weight)
          .backward();
      for (size_t i = 0; i < weights.size(); ++i) {
        const torch::Tensor& gradient = weights[i].grad();
        mean[i] += gradient / static_cast<double>(workers);
        own[worker][i] = kBeta2 * own[worker][i] + (1 - kBeta2) * gradient * gradient;
      }
    }
    const uint64_t done = step + 1;
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (step == 0) first.push_back(mean[i].clone());
      first[i] = step == 0 ? mean[i] : kBeta1 * first[i] + (1 - kBeta1) * mean[i];
      if (done == 1 || done == 2 || done == 4 || done == 8) {
        given[i].zero_();
        for (const auto& squares : own) given[i] += squares[i];
        const auto n = static_cast<double>(workers);
        given[i] /= n * std::sqrt(n) * (1 - std::pow(kBeta2, static_cast<double>(done)));
      }
      torch::Tensor weight = weights[i];
      const torch::Tensor along = first[i] + decay * weight;
      const torch::Tensor under = torch::maximum(given[i].sqrt(), along.abs() / 10);
      weight.sub_(kRate * along / (under + kEpsilon));
    }
  }
  std::vector<torch::Tensor> ended;
  for (const torch::Tensor& weight : weights) ended.push_back(weight.detach());
  return ended;
}

Settings adam_in_memory(Settings more) {
  Settings settings = {{"optimizer.name", "adam"},
                       {"optimizer.lr", "0.01"},
                       {"optimizer.beta2", "0.99"},
                       {"exchange.momentum", "memory"}};
  for (auto& row : more) settings.push_back(std::move(row));
  return settings;
}

// Second moments are averaged in 16 bits and rounded twice, which changes a step by up to 0.2 %: ten
// steps of up to five learning rates by 1e-3. Without the factor 1 / sqrt(n) it is 1e-2 and more.
TEST(MemoryAdam, IsItsDefinitionWhereNothingIsLost) {
  for (const uint64_t workers : {1, 2, 3})
    for (const char* codec : {"fp32", "topk:density=1"})
      for (const bool decays : {false, true}) {
        const auto run = run_toy(
            static_cast<int>(workers),
            {.settings = adam_in_memory(
                 {{"exchange.codec", codec}, {"optimizer.weight_decay", decays ? "0.05" : "0"}})});
        const auto plain = plain_loop(workers, decays ? 0.05 : 0);
        EXPECT_LT(distance(run[0].weights, plain), 1e-3) << workers << " " << codec << decays;
        EXPECT_GT(distance(run[0].weights, std::make_shared<ToyNet>()->parameters()), 0.03);
        for (const ToyResult& rank : run) EXPECT_TRUE(same_bits(rank.weights, run[0].weights));
      }
}

TEST(MemoryAdam, KeepsItsRanksAlikeBesideASparseCodec) {
  const auto run =
      run_toy(3, {.settings = adam_in_memory({{"exchange.codec", "topk:density=0.1"}})});
  for (const ToyResult& rank : run) EXPECT_TRUE(same_bits(rank.weights, run[0].weights));
  const auto without = run_toy(3, {.settings = {{"optimizer.name", "adam"},
                                                {"optimizer.lr", "0.01"},
                                                {"optimizer.beta2", "0.99"},
                                                {"exchange.codec", "topk:density=0.1"}}});
  EXPECT_GT(distance(run[0].weights, without[0].weights), 1e-3);
  EXPECT_GT(run[0].summary.sent_bytes_per_step, without[0].summary.sent_bytes_per_step);
}

// A gradient where the second moments have seen none.
TEST(MemoryAdam, IsBoundedWhereNoSecondMomentIsKnown) {
  torch::Tensor weights = torch::zeros({4}).requires_grad_(true);
  MemoryAdam optimizer({weights}, torch::optim::AdamOptions(kRate).betas({0, kBeta2}));
  optimizer.moments({weights})[0].copy_(torch::tensor({4.0f, 0.0f, 1e-20f, 0.0f}));
  weights.mutable_grad() = torch::tensor({2.0f, 3.0f, -5.0f, 0.0f});
  optimizer.step();
  const double most = 10 * kRate;
  EXPECT_NEAR(weights[0].item<double>(), -kRate, 1e-8);
  EXPECT_NEAR(weights[1].item<double>(), -most, 1e-6);
  EXPECT_NEAR(weights[2].item<double>(), most, 1e-6);
  EXPECT_EQ(weights[3].item<double>(), 0);
}

TEST(MemoryAdam, TakesLibtorchsOperationsWhereTheKernelCannot) {
  torch::manual_seed(1);
  const torch::Tensor from = torch::randn({9, 37}), gradient = torch::randn({9, 37});
  const auto stepped = [&](bool turned) {
    const auto laid = [&](const torch::Tensor& t) {
      return turned ? t.t().clone().t() : t.clone();
    };
    torch::Tensor weights = laid(from).requires_grad_(true);
    MemoryAdam optimizer({weights},
                         torch::optim::AdamOptions(kRate).betas({0, kBeta2}).weight_decay(0.1));
    optimizer.moments({weights})[0].fill_(0.5);
    weights.mutable_grad() = laid(gradient);
    optimizer.step();
    return weights.detach().contiguous();
  };
  EXPECT_TRUE(torch::allclose(stepped(true), stepped(false), 1e-6, 1e-7));
}

TEST(MemoryAdam, MistakesAreFoundBeforeAnythingIsRead) {
  const auto says = [](const Settings& more) {
    const auto faults = find_faults(toy_recipe(adam_in_memory(more)).options, {});
    return faults.empty() ? std::string()
                          : faults.front().key + ": " + faults.front().status.message();
  };
  EXPECT_EQ(says({{"exchange.codec", "topk"}}), "");
  EXPECT_THAT(says({{"optimizer.beta1", "0"}}),
              HasSubstr("exchange.momentum: memory needs optimizer.beta1 greater than 0"));
  EXPECT_THAT(says({{"exchange.combine", "median"}}), HasSubstr("exchange.combine = mean"));
  EXPECT_THAT(says({{"run.elastic", "true"}}), HasSubstr("workers that come and go"));
  EXPECT_THAT(says({{"exchange.codec", "topk"}, {"exchange.flush", "measure"}}),
              HasSubstr("exchange.flush = off"));
  EXPECT_THAT(says({{"exchange.codec", "topk"}, {"exchange.feedback", "residual"}}),
              HasSubstr("memory 'residual' cannot take it over"));
}

}  // namespace
}  // namespace thinwire
