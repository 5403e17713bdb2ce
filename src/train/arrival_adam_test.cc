// Tests of Adam for values that arrive late, against Adam and against the formula.
// SPDX-License-Identifier: Apache-2.0
#include "train/arrival_adam.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

torch::optim::AdamOptions options() {
  return torch::optim::AdamOptions(0.01).betas({0.8, 0.99}).eps(1e-6);
}

TEST(ArrivalAdam, IsAdamWhereEveryValueArrivesInEveryStep) {
  torch::Tensor own = torch::linspace(-1, 1, 12).reshape({3, 4});
  torch::Tensor plain = own.clone();
  ArrivalAdam arrival({own}, options().weight_decay(0.1));
  torch::optim::Adam adam({plain}, options().weight_decay(0.1));
  for (int step = 0; step < 40; ++step) {
    own.mutable_grad() = torch::sin(torch::arange(1, 13).reshape({3, 4}) * (step + 1.0f));
    plain.mutable_grad() = own.grad().clone();
    arrival.step();
    adam.step();
  }
  EXPECT_LT((own - plain).abs().max().item<float>(), 1e-6f);
}

// Value i arrives in every (i + 1)th step. A loop in double precision does what the header says.
TEST(ArrivalAdam, FollowsItsFormulaWhereValuesWait) {
  constexpr int kValues = 5;
  constexpr double kDecay = 0.05;
  torch::Tensor weights = torch::ones({kValues});
  ArrivalAdam adam({weights}, options().weight_decay(kDecay));
  std::vector<double> w(kValues, 1), m(kValues, 0), v(kValues, 0), k(kValues, 0);
  for (int step = 1; step <= 30; ++step) {
    torch::Tensor gradient = torch::zeros({kValues});
    for (int i = 0; i < kValues; ++i) {
      ++k[i];
      v[i] *= 0.99;
      if (step % (i + 1) != 0) continue;
      const double arrived = std::cos(step * 0.7 + i) * (i + 1);
      gradient[i] = arrived;
      const double each = static_cast<float>(arrived) / k[i] + kDecay * w[i];
      m[i] = std::pow(0.8, k[i]) * m[i] + (1 - std::pow(0.8, k[i])) * each;
      v[i] += 0.01 * each * each * k[i] * k[i];
      w[i] -= k[i] * 0.01 * m[i] / (1 - std::pow(0.8, step)) /
              (std::sqrt(v[i] / (1 - std::pow(0.99, step))) + 1e-6);
      k[i] = 0;
    }
    weights.mutable_grad() = gradient;
    adam.step();
  }
  for (int i = 0; i < kValues; ++i) EXPECT_NEAR(weights[i].item<double>(), w[i], 2e-6) << i;
}

// Adam moves a weight for many steps after one gradient; in all by about lr a / sqrt(v), as here at once.
TEST(ArrivalAdam, ALoneArrivalMovesAtOnceAsFarAsAdamInAll) {
  torch::Tensor at_once = torch::ones({1}), in_all = torch::ones({1});
  const auto steady = torch::optim::AdamOptions(0.01).betas({0.8, 0.999999});  // v hardly moves
  ArrivalAdam arrival({at_once}, steady);
  torch::optim::Adam adam({in_all}, steady);
  for (int step = 1; step <= 100; ++step) {
    const float gradient = step == 50 ? 2.0f : 0.0f;
    at_once.mutable_grad() = torch::full({1}, gradient);
    in_all.mutable_grad() = torch::full({1}, gradient);
    arrival.step();
    adam.step();
    if (step == 50) {
      EXPECT_GT(1 - at_once.item<float>(), 4 * (1 - in_all.item<float>()));
    }
  }
  EXPECT_NEAR(1 - at_once.item<float>(), 1 - in_all.item<float>(),
              0.2 * (1 - in_all.item<float>()));
}

TEST(ArrivalAdam, IsWhatTheTrainerTakesWhereAskedTo) {
  const auto run_with = [](const char* place) {
    return run_toy(2, {.settings = {{"optimizer.name", "adam"},
                                    {"optimizer.lr", "0.01"},
                                    {"exchange.codec", "topk:density=0.1"},
                                    {"exchange.momentum", place}}});
  };
  const auto arrival = run_with("arrival");
  EXPECT_TRUE(same_bits(arrival[0].weights, arrival[1].weights));
  const auto plain = run_with("optimizer");
  EXPECT_GT(distance(arrival[0].weights, plain[0].weights), 1e-3);
  EXPECT_TRUE(same_bits(run_with("auto")[0].weights, plain[0].weights));
}

TEST(ArrivalAdam, MistakesAreFoundBeforeAnythingIsRead) {
  const auto fault_of = [](const char* optimizer, const char* place) -> std::string {
    const auto faults = find_faults(toy_recipe({{"optimizer.name", optimizer},
                                                {"exchange.codec", "topk"},
                                                {"exchange.momentum", place}})
                                        .options,
                                    {});
    return faults.empty() ? "" : faults.front().key + ": " + faults.front().status.message();
  };
  EXPECT_EQ(fault_of("adam", "arrival"), "");
  EXPECT_THAT(fault_of("adam", "memory"), HasSubstr("cannot act in the memory"));
  EXPECT_THAT(fault_of("sgd", "arrival"), HasSubstr("exchange.momentum: arrival is for"));
}

}  // namespace
}  // namespace thinwire
