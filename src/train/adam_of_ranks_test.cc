// Tests of Adam with second moments of the ranks' own gradients: against a plain loop, and what it
// refuses.
// SPDX-License-Identifier: Apache-2.0
#include "train/adam_of_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/recipe_parts.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

constexpr double kBeta2 = 0.99, kRate = 0.01, kEpsilon = 1e-8;

torch::Tensor in_16_bits(const torch::Tensor& values) {
  return values.to(torch::kBFloat16).to(torch::kFloat32);
}

// Two steps of `workers` ranks on one, where nothing is lost.
std::vector<torch::Tensor> plain_loop(uint64_t workers, double decay) {
  const auto net = std::make_shared<ToyNet>();
  const std::vector<torch::Tensor> weights = net->parameters();
  std::vector<torch::Tensor> given;
  std::vector<std::vector<torch::Tensor>> own(workers);
  for (const torch::Tensor& weight : weights) {
    given.push_back(torch::zeros_like(weight));
    for (auto& squares : own) squares.push_back(torch::zeros_like(weight));
  }
  const ToyData data(90);
  for (uint64_t step = 0; step < 2; ++step) {
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
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto n = static_cast<double>(workers);
      const double factor =
          1 / std::sqrt(n) / (1 - std::pow(kBeta2, static_cast<double>(step + 1)));
      given[i].zero_();
      for (const auto& squares : own) given[i] += in_16_bits(squares[i] * factor);
      given[i] = in_16_bits(given[i] / n);
      torch::Tensor weight = weights[i];
      const torch::Tensor along = mean[i] + decay * weight;
      const torch::Tensor under =
          torch::maximum((given[i] + (decay * weight).square()).sqrt(), along.abs() / 10);
      weight.sub_(kRate * along / (under + kEpsilon));
    }
  }
  std::vector<torch::Tensor> ended;
  for (const torch::Tensor& weight : weights) ended.push_back(weight.detach());
  return ended;
}

Settings of_ranks(Settings more) {
  Settings settings = {{"optimizer.name", "adam"},
                       {"optimizer.lr", "0.01"},
                       {"optimizer.beta2", "0.99"},
                       {"optimizer.second_moment", "ranks"}};
  for (auto& row : more) settings.push_back(std::move(row));
  return settings;
}

// A value of another last bit may be rounded to another of 16 bits, which changes a step by 0.2 %.
// After more steps than these two that turns a ReLU off.
TEST(AdamOfRanks, IsItsDefinitionWhereNothingIsLost) {
  for (const uint64_t workers : {1, 2, 3})
    for (const char* beta1 : {"0", "0.9"})
      for (const bool decays : {false, true}) {
        const auto run = run_toy(
            static_cast<int>(workers),
            {.settings = of_ranks({{"exchange.codec", beta1[1] == 0 ? "fp32" : "topk:density=1"},
                                   {"train.epochs", "0.4"},
                                   {"optimizer.beta1", beta1},
                                   {"optimizer.weight_decay", decays ? "0.05" : "0"}})});
        const auto plain = plain_loop(workers, decays ? 0.05 : 0);
        EXPECT_LT(distance(run[0].weights, plain), 1e-4) << workers << " " << beta1 << decays;
        EXPECT_GT(distance(run[0].weights, std::make_shared<ToyNet>()->parameters()), 0.015);
        for (const ToyResult& rank : run) EXPECT_TRUE(same_bits(rank.weights, run[0].weights));
      }
}

TEST(AdamOfRanks, KeepsItsRanksAlikeBesideASparseCodec) {
  const auto run = run_toy(3, {.settings = of_ranks({{"exchange.codec", "topk:density=0.1"}})});
  for (const ToyResult& rank : run) EXPECT_TRUE(same_bits(rank.weights, run[0].weights));
  const auto without = run_toy(3, {.settings = {{"optimizer.name", "adam"},
                                                {"optimizer.lr", "0.01"},
                                                {"optimizer.beta2", "0.99"},
                                                {"exchange.codec", "topk:density=0.1"}}});
  EXPECT_GT(distance(run[0].weights, without[0].weights), 1e-3);
  EXPECT_GT(run[0].summary.sent_bytes_per_step, without[0].summary.sent_bytes_per_step);
}

// A gradient where the second moments have seen none.
TEST(AdamOfRanks, IsBoundedWhereNoSecondMomentIsKnown) {
  torch::Tensor weights = torch::zeros({4}).requires_grad_(true);
  AdamOfRanks optimizer({weights}, torch::optim::AdamOptions(kRate).betas({0, kBeta2}));
  optimizer.moments({weights})[0].copy_(torch::tensor({4.0f, 0.0f, 1e-20f, 0.0f}));
  weights.mutable_grad() = torch::tensor({2.0f, 3.0f, -5.0f, 0.0f});
  optimizer.step();
  const double most = 10 * kRate;
  EXPECT_NEAR(weights[0].item<double>(), -kRate, 1e-8);
  EXPECT_NEAR(weights[1].item<double>(), -most, 1e-6);
  EXPECT_NEAR(weights[2].item<double>(), most, 1e-6);
  EXPECT_EQ(weights[3].item<double>(), 0);
}

TEST(AdamOfRanks, TakesLibtorchsOperationsWhereTheKernelCannot) {
  torch::manual_seed(1);
  const torch::Tensor from = torch::randn({9, 37}), gradient = torch::randn({9, 37});
  const auto stepped = [&](bool turned) {
    const auto laid = [&](const torch::Tensor& t) {
      return turned ? t.t().contiguous().t() : t.clone();
    };
    torch::Tensor weights = laid(from).requires_grad_(true);
    EXPECT_EQ(weights.is_contiguous(), !turned);
    AdamOfRanks optimizer({weights},
                          torch::optim::AdamOptions(kRate).betas({0, kBeta2}).weight_decay(0.1));
    optimizer.moments({weights})[0].fill_(0.005);  // the bound holds where |g| > 0.7
    weights.mutable_grad() = laid(gradient);
    optimizer.step();
    return weights.detach().contiguous();
  };
  EXPECT_TRUE(torch::allclose(stepped(true), stepped(false), 1e-6, 1e-7));
}

TEST(AdamOfRanks, ClipsTheGradientsOfRanks) {
  const auto clips = [](const Settings& more) {
    Settings settings = {
        {"optimizer.name", "adam"}, {"exchange.codec", "topk"}, {"clip.norm", "1"}};
    settings.insert(settings.end(), more.begin(), more.end());
    return clips_own(toy_recipe(settings).options);
  };
  EXPECT_TRUE(clips({{"optimizer.second_moment", "ranks"}}));
  EXPECT_FALSE(clips({{"optimizer.second_moment", "ranks"}, {"clip.of", "mean"}}));
  EXPECT_FALSE(clips({}));
}

TEST(AdamOfRanks, MistakesAreFoundBeforeAnythingIsRead) {
  const auto says = [](const Settings& more) {
    const auto faults = find_faults(toy_recipe(of_ranks(more)).options, {});
    return faults.empty() ? std::string()
                          : faults.front().key + ": " + faults.front().status.message();
  };
  EXPECT_EQ(says({{"exchange.codec", "topk"}}), "");
  EXPECT_EQ(says({{"exchange.codec", "fp32"}, {"optimizer.beta1", "0"}}), "");
  EXPECT_THAT(says({{"exchange.codec", "fp32"}}),
              HasSubstr("optimizer.second_moment: ranks is for sparse codecs"));
  EXPECT_THAT(says({{"exchange.codec", "topk"}, {"exchange.momentum", "optimizer"}}),
              HasSubstr("optimizer.second_moment: ranks is for sparse codecs"));
  EXPECT_THAT(says({{"optimizer.name", "sgd"}}), HasSubstr("for optimizer.name = adam"));
  EXPECT_THAT(says({{"sync.method", "average"}}), HasSubstr("sync.method"));
  EXPECT_THAT(says({{"exchange.codec", "topk"}, {"exchange.combine", "median"}}),
              HasSubstr("for exchange.combine = mean"));
  EXPECT_THAT(says({{"exchange.codec", "topk"}, {"run.elastic", "true"}}),
              HasSubstr("workers that come and go"));
  EXPECT_THAT(says({{"exchange.codec", "topk"}, {"exchange.flush", "measure"}}),
              HasSubstr("for exchange.flush = off"));
  EXPECT_THAT(
      [&] {
        run_toy(2, {.settings = of_ranks({{"sync.method", "average:tau=2"}})});
      },
      ::testing::ThrowsMessage<Error>(HasSubstr("optimizer.second_moment: ranks is not")));
}

}  // namespace
}  // namespace thinwire
