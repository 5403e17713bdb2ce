// Tests of momentum in the memory against torch's own SGD: the same steps if nothing is lost.
// SPDX-License-Identifier: Apache-2.0
#include "train/memory_sgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "train/temporary_folder.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSteps = 10;

struct Loop {
  torch::optim::SGDOptions sgd = torch::optim::SGDOptions(0.1).momentum(0.9);
  bool decay_biases = true;
  std::vector<double> rates = {};  // of each step; 0.1 where absent
  double own_clip = 0;             // of each of `workers` parts of a batch
  uint64_t workers = 1;
  std::optional<uint64_t> skipped = {};  // step
};

// What a user of libtorch writes for so many workers, on one.
std::vector<torch::Tensor> plain_loop(const Loop& loop) {
  const auto net = std::make_shared<ToyNet>();
  std::vector<torch::Tensor> decayed, spared;
  for (const torch::Tensor& parameter : net->parameters())
    (loop.decay_biases || parameter.dim() > 1 ? decayed : spared).push_back(parameter);
  torch::optim::SGDOptions base = loop.sgd, without = loop.sgd;
  base.weight_decay(0);
  without.weight_decay(0);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decayed, std::make_unique<torch::optim::SGDOptions>(loop.sgd));
  if (!spared.empty())
    groups.emplace_back(spared, std::make_unique<torch::optim::SGDOptions>(without));
  torch::optim::SGD optimizer(groups, base);
  const ToyData data(90);
  for (uint64_t step = 0; step < kSteps; ++step) {
    const auto order =
        random_permutation({.seed = 3, .use = RandomUse::kShuffle, .step = step / 5}, 90);
    const size_t begin = step % 5 * 20, size = std::min<size_t>(20, 90 - begin);
    std::vector<torch::Tensor> mean;
    for (uint64_t worker = 0; worker < loop.workers; ++worker) {
      const size_t from = size * worker / loop.workers, to = size * (worker + 1) / loop.workers;
      const Batch batch = data.fetch(std::span(order).subspan(begin + from, to - from), {});
      optimizer.zero_grad();
      const double weight =
          static_cast<double>((to - from) * loop.workers) / static_cast<double>(size);
      (torch::nn::functional::cross_entropy(net->forward(batch.inputs), batch.targets) * weight)
          .backward();
      if (loop.own_clip > 0)
        torch::nn::utils::clip_grad_norm_(
            net->parameters(), loop.own_clip / std::sqrt(static_cast<double>(loop.workers)));
      for (size_t i = 0; i < net->parameters().size(); ++i) {
        const torch::Tensor own = net->parameters()[i].grad() / static_cast<double>(loop.workers);
        if (worker == 0)
          mean.push_back(own.clone());
        else
          mean[i] += own;
      }
    }
    if (step == loop.skipped) continue;
    for (size_t i = 0; i < mean.size(); ++i) net->parameters()[i].mutable_grad() = mean[i];
    for (auto& group : optimizer.param_groups())
      group.options().set_lr(loop.rates.empty() ? 0.1 : loop.rates.at(step));
    optimizer.step();
  }
  std::vector<torch::Tensor> weights;
  for (const torch::Tensor& parameter : net->parameters()) weights.push_back(parameter.detach());
  return weights;
}

struct Case {
  const char* name;
  Loop loop;
  Settings settings;
};

const Case& case_of(const std::string& name) {
  static const std::vector<Case> cases = {
      {"plain", {}, {}},
      {"decay",
       {.sgd = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.05)},
       {{"optimizer.weight_decay", "0.05"}}},
      {"decayOfMatrices",
       {.sgd = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.05),
        .decay_biases = false},
       {{"optimizer.weight_decay", "0.05"}, {"optimizer.decay_bias_norm", "false"}}},
      {"nesterov",
       {.sgd = torch::optim::SGDOptions(0.1).momentum(0.8).nesterov(true).weight_decay(0.05)},
       {{"optimizer.momentum", "0.8"},
        {"optimizer.nesterov", "true"},
        {"optimizer.weight_decay", "0.05"}}},
      {"dampening",
       {.sgd = torch::optim::SGDOptions(0.1).momentum(0.9).dampening(0.3).weight_decay(0.05)},
       {{"optimizer.dampening", "0.3"}, {"optimizer.weight_decay", "0.05"}}},
      {"changingRate",
       {.sgd = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.05),
        .rates = {0.1, 0.1, 0.1, 0.1, 0.1, 0.02, 0.02, 0.02, 0.02, 0.02}},
       {{"optimizer.weight_decay", "0.05"},
        {"schedule.name", "step"},
        {"schedule.milestones", "1"},
        {"schedule.factor", "0.2"}}}};
  for (const Case& one : cases)
    if (one.name == name) return one;
  throw std::runtime_error(name);
}

Settings with(Settings settings, const Settings& more) {
  settings.insert(settings.begin(), {{"optimizer.momentum", "0.9"}});
  for (const auto& row : more) {
    std::erase_if(settings, [&](const auto& old) { return old.first == row.first; });
    settings.push_back(row);
  }
  return settings;
}

class MemoryMomentum : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Options, MemoryMomentum,
                         ::testing::Values("plain", "decay", "decayOfMatrices", "nesterov",
                                           "dampening", "changingRate"),
                         [](const auto& row) { return std::string(row.param); });

// All values of top-k are sent.
TEST_P(MemoryMomentum, IsTorchsSgdWhereNothingIsLost) {
  const Case& one = case_of(GetParam());
  const auto plain = plain_loop(one.loop);
  for (const char* codec : {"fp32", "topk:density=1"})
    for (const char* grouping : {"tensor", "model"})
      for (const int workers : {1, 3}) {
        const auto run =
            run_toy(workers, {.settings = with(one.settings, {{"exchange.momentum", "memory"},
                                                              {"exchange.codec", codec},
                                                              {"exchange.grouping", grouping}})});
        EXPECT_LT(distance(run[0].weights, plain), 3e-6) << codec << grouping << workers;
        EXPECT_TRUE(same_bits(run[0].weights, run.back().weights));
      }
  const auto run =
      run_toy(2, {.settings = with(one.settings, {{"exchange.momentum", "optimizer"}})});
  EXPECT_LT(distance(run[0].weights, plain), 3e-6);
}

// Neither velocities nor the decay's own momentum know of the step that was skipped.
TEST_P(MemoryMomentum, ASkippedStepLeavesNoTrace) {
  Loop loop = case_of(GetParam()).loop;
  loop.skipped = 4;
  ToyOptions toy{.settings = with(case_of(GetParam()).settings, {{"exchange.momentum", "memory"}})};
  toy.change = [](int rank, Task& task) {
    if (rank != 1) return;
    task.loss = [step = 0](const torch::Tensor& outputs, const torch::Tensor& targets) mutable {
      const torch::Tensor loss = torch::nn::functional::cross_entropy(outputs, targets);
      const bool training = outputs.requires_grad();
      return training && step++ == 4 ? loss * std::numeric_limits<float>::quiet_NaN() : loss;
    };
  };
  const auto run = run_toy(2, toy);
  EXPECT_EQ(run[0].summary.skipped_steps, 1u);
  EXPECT_LT(distance(run[0].weights, plain_loop(loop)), 3e-6);
}

// What ranks remember is redistributed, and the optimiser's part is in the checkpoint.
TEST_P(MemoryMomentum, GoesOnAtAnotherNumberOfWorkers) {
  const Case& one = case_of(GetParam());
  for (const char* codec : {"fp32", "topk:density=1"}) {
    const TemporaryFolder folder;
    ToyOptions toy{.settings = with(one.settings,
                                    {{"exchange.momentum", "memory"}, {"exchange.codec", codec}})};
    toy.places.out = (folder / "run").string();
    toy.stop_after = 4;
    run_toy(2, toy);
    toy.places.resume = toy.places.out;
    toy.stop_after = UINT64_MAX;
    EXPECT_LT(distance(run_toy(3, toy)[0].weights, plain_loop(one.loop)), 3e-6) << codec;
  }
}

// Six steps from `weights`, with the same gradients each time.
torch::Tensor stepped(const torch::Tensor& start, const torch::optim::SGDOptions& sgd,
                      bool momentum_before) {
  torch::manual_seed(3);
  const torch::Tensor weights = start.clone().set_requires_grad(true);
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (momentum_before)
    optimizer = std::make_unique<MemorySgd>(std::vector{weights}, sgd);
  else
    optimizer = std::make_unique<torch::optim::SGD>(std::vector{weights}, sgd);
  torch::Tensor velocity = torch::zeros_like(start, torch::kFloat32);
  for (int step = 0; step < 6; ++step) {
    const torch::Tensor gradient = torch::randn(start.sizes());
    velocity = sgd.momentum() * velocity + (step == 0 ? 1 : 1 - sgd.dampening()) * gradient;
    const torch::Tensor ahead = gradient + sgd.momentum() * velocity;
    const torch::Tensor moved = sgd.nesterov() ? ahead : velocity;
    weights.mutable_grad() = torch::empty_like(start).copy_(momentum_before ? moved : gradient);
    optimizer->step();
  }
  return weights.detach().to(torch::kFloat32);
}

// Where weights lie in another order, or are of another type.
TEST(MemorySgd, TakesLibtorchsOperationsWhereTheKernelCannot) {
  const torch::optim::SGDOptions base = torch::optim::SGDOptions(0.1).momentum(0.9);
  torch::optim::SGDOptions dampened = base, nesterov = base;
  dampened.dampening(0.25).weight_decay(0.1);
  nesterov.nesterov(true).weight_decay(0.1);
  torch::manual_seed(2);
  const torch::Tensor turned = torch::randn({9, 37}).t(), small = turned.to(torch::kBFloat16);
  for (const torch::optim::SGDOptions& sgd : {dampened, nesterov}) {
    const torch::Tensor want = stepped(turned, sgd, false);
    EXPECT_TRUE(stepped(turned, sgd, true).allclose(want, 1e-5, 1e-6));
    EXPECT_TRUE(stepped(turned.contiguous(), sgd, true).allclose(want, 1e-5, 1e-6));
    EXPECT_TRUE(stepped(small, sgd, true).allclose(want, 0.05, 0.05));
  }
}

TEST(ClipOfOwnGradients, IsThatOfEachWorkerBeforeTheyMeet) {
  const Loop loop{.own_clip = 0.5, .workers = 3};
  const auto plain = plain_loop(loop);
  const auto weights_of = [](const char* of, const char* momentum) {
    return run_toy(3, {.settings = {{"optimizer.momentum", "0.9"},
                                    {"clip.norm", "0.5"},
                                    {"clip.of", of},
                                    {"exchange.momentum", momentum}}})[0]
        .weights;
  };
  EXPECT_LT(distance(weights_of("auto", "memory"), plain), 3e-6);
  EXPECT_LT(distance(weights_of("own", "optimizer"), plain), 3e-6);
  EXPECT_GT(distance(weights_of("auto", "optimizer"), plain), 1e-3);  // of the mean
  EXPECT_GT(distance(weights_of("mean", "memory"), plain), 1e-3);     // of velocities
}

TEST(MomentumOfTheRecipe, GoesIntoTheMemoryOfSparseCodecs) {
  const auto weights_of = [](const Settings& settings) {
    return run_toy(2, {.settings = settings})[0].weights;
  };
  const Settings memory = {{"optimizer.momentum", "0.9"}, {"exchange.codec", "topk:density=0.1"}};
  // The same by hand; there is no weight decay.
  const Settings by_hand = {{"exchange.feedback", "ahead"}, {"exchange.codec", "topk:density=0.1"}};
  EXPECT_TRUE(same_bits(weights_of(memory), weights_of(by_hand)));
  Settings outside = memory;
  outside.emplace_back("exchange.momentum", "optimizer");
  EXPECT_FALSE(same_bits(weights_of(memory), weights_of(outside)));
  outside.emplace_back("exchange.feedback", "residual");
  const auto residual = weights_of(outside);
  outside.erase(outside.begin() + 2);  // a memory that is named stays
  EXPECT_TRUE(same_bits(weights_of(outside), residual));
}

TEST(MomentumOfTheRecipe, MistakesAreFoundBeforeAnythingIsRead) {
  const auto fault_of = [](const Settings& settings) -> std::optional<RecipeFault> {
    const auto faults = find_faults(toy_recipe(settings).options, {});
    return faults.empty() ? std::nullopt : std::optional(faults.front());
  };
  const Settings momentum = {{"optimizer.momentum", "0.9"}};
  EXPECT_FALSE(fault_of(momentum));
  const auto twice = fault_of(with(momentum, {{"exchange.feedback", "dgc:momentum=0.9"}}));
  ASSERT_TRUE(twice);
  EXPECT_EQ(twice->key, "exchange.momentum");
  EXPECT_THAT(twice->status.message(), HasSubstr("would act twice"));
  EXPECT_TRUE(fault_of(with(momentum, {{"exchange.codec", "signum"}})));
  EXPECT_TRUE(fault_of(with(momentum, {{"exchange.codec", "topk"},
                                       {"exchange.feedback", "residual"},
                                       {"exchange.momentum", "memory"}})));
  const auto dampened =
      fault_of(with(momentum, {{"optimizer.nesterov", "true"}, {"optimizer.dampening", "0.5"}}));
  ASSERT_TRUE(dampened);
  EXPECT_EQ(dampened->key, "optimizer.nesterov");
  // Workers that step by themselves keep theirs.
  EXPECT_FALSE(fault_of(with(momentum, {{"sync.method", "average"}, {"exchange.codec", "topk"}})));
}

TEST(MomentumOfTheRecipe, IsThereIfItIsToActInTheMemory) {
  const auto says = [](const Settings& settings) {
    const Settings memory = {{"exchange.momentum", "memory"}, {"exchange.codec", "topk"}};
    const auto faults = find_faults(toy_recipe(with(memory, settings)).options, {});
    return faults.empty() ? "nothing" : faults.front().key + ": " + faults.front().status.message();
  };
  EXPECT_EQ(says({{"optimizer.momentum", "0.9"}}), "nothing");
  // That of the rounds.
  EXPECT_EQ(says({{"sync.method", "diloco"}, {"optimizer.momentum", "0"}}), "nothing");
  EXPECT_THAT(says({{"optimizer.momentum", "0"}}),
              HasSubstr("exchange.momentum: memory needs optimizer.momentum greater than 0"));
  EXPECT_THAT(says({{"optimizer.name", "signsgd"}, {"optimizer.momentum", "0.9"}}),
              HasSubstr("exchange.momentum: signsgd has no momentum that could act in the memory"));
  for (const char* optimizer : {"adam", "novograd"})
    EXPECT_THAT(says({{"optimizer.name", optimizer}, {"optimizer.momentum", "0.9"}}),
                HasSubstr("cannot act in the memory"));
}

// The first moment of Adam and NovoGrad is a momentum, too.
TEST(MomentumOfTheRecipe, AFirstMomentBesideAMemoryWithMomentumIsRefused) {
  const auto says = [](const Settings& settings) {
    const auto faults = find_faults(toy_recipe(settings).options, {});
    return faults.empty() ? "nothing" : faults.front().key + ": " + faults.front().status.message();
  };
  for (const char* optimizer : {"adam", "novograd"}) {
    const Settings plain = {{"optimizer.name", optimizer}};
    for (const Settings& memory :
         {Settings{{"exchange.codec", "topk"}, {"exchange.feedback", "dgc"}},
          Settings{{"exchange.codec", "topk"}, {"exchange.feedback", "ahead"}},
          Settings{{"exchange.codec", "signum"}},
          Settings{{"exchange.codec", "topk"},
                   {"exchange.feedback", "dgc"},
                   {"exchange.momentum", "optimizer"}}}) {
      const Settings both = with(plain, memory);
      EXPECT_THAT(says(both), HasSubstr("exchange.momentum: momentum: would act twice"));
      EXPECT_EQ(says(with(both, {{"optimizer.beta1", "0"}})), "nothing");
      EXPECT_EQ(says(with(both, {{"sync.method", "average"}, {"exchange.feedback", "auto"}})),
                "nothing");
    }
    EXPECT_EQ(says(with(plain, {{"exchange.codec", "topk"}})), "nothing");
    EXPECT_EQ(says(with(plain, {{"exchange.codec", "topk"},
                                {"exchange.feedback", "dgc:clip=1,momentum=0"}})),
              "nothing");
  }
  EXPECT_EQ(says({{"optimizer.name", "signsgd"}, {"exchange.codec", "signum"}}), "nothing");
}

}  // namespace
}  // namespace thinwire
