// Gradients by hooks: means, accumulation, parameters without a gradient, misuse.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "train/toy_task.h"

namespace thinwire {
namespace {

struct Two : torch::nn::Module {
  Two() {
    used = register_module("used", torch::nn::Linear(3, 2));
    spare = register_module("spare", torch::nn::Linear(3, 2));
  }
  torch::nn::Linear used = nullptr, spare = nullptr;
};

torch::Tensor input_of(int rank) { return torch::arange(3).to(torch::kFloat) + 10 * rank; }

TEST(DataParallel, GradientsAreTheMeanOverRanks) {
  run_local(3, [](Group& group) {
    Two net;
    Store store;
    DataParallel parallel(net, group, store, {});
    net.used(input_of(group.rank())).sum().backward();
    net.spare(input_of(group.rank())).sum().backward();
    const StepReport report = parallel.finish();
    EXPECT_FALSE(report.skipped);
    EXPECT_TRUE(net.used->weight.grad().allclose(input_of(1).expand({2, 3})));  // mean of 0, 1, 2
    EXPECT_TRUE(net.used->bias.grad().equal(torch::ones(2)));
  });
}

TEST(DataParallel, StartsFromTheWeightsOfRankZero) {
  run_local(2, [](Group& group) {
    Two net;
    {
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& parameter : net.parameters()) parameter.fill_(group.rank() + 5);
    }
    Store store;
    DataParallel parallel(net, group, store, {});
    for (const torch::Tensor& parameter : net.parameters())
      EXPECT_TRUE(parameter.equal(torch::full_like(parameter, 5)));
  });
}

TEST(DataParallel, AccumulatesWithoutTalking) {
  run_local(2, [](Group& group) {
    Two net;
    Store store;
    DataParallel parallel(net, group, store, {});
    parallel.set_accumulating(true);
    net.used(input_of(group.rank())).sum().backward();
    net.spare(input_of(group.rank())).sum().backward();  // in the first pass only
    parallel.set_accumulating(false);
    net.used(input_of(group.rank())).sum().backward();
    parallel.finish();
    EXPECT_TRUE(net.used->weight.grad().allclose((input_of(0) + input_of(1)).expand({2, 3})));
    EXPECT_TRUE(net.spare->weight.grad().allclose((input_of(0) + input_of(1)).expand({2, 3}) / 2));
  });
}

TEST(DataParallel, AParameterWithoutAGradientCountsAsZero) {
  run_local(2, [](Group& group) {
    Two net;
    Store store;
    DataParallel parallel(net, group, store, {});
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      net.used(input_of(0)).sum().backward();
      if (group.rank() == 1) net.spare(input_of(2)).sum().backward();
      parallel.finish();
      EXPECT_TRUE(net.spare->weight.grad().allclose(input_of(2).expand({2, 3}) / 2));
      EXPECT_TRUE(net.used->weight.grad().allclose(input_of(0).expand({2, 3})));
    }
  });
}

TEST(DataParallel, TwoBackwardPassesInAStepAreABrokenContract) {
  run_local(1, [](Group& group) {
    Two net;
    Store store;
    DataParallel parallel(net, group, store, {});
    net.used(input_of(0)).sum().backward();
    EXPECT_THROW(net.used(input_of(0)).sum().backward(), Error);
  });
}

TEST(DataParallel, LeavesTheModuleAloneWhenItIsGone) {
  Two net;
  run_local(1, [&](Group& group) {
    Store store;
    DataParallel parallel(net, group, store, {});
  });
  net.used(input_of(1)).sum().backward();
  EXPECT_TRUE(net.used->weight.grad().equal(input_of(1).expand({2, 3})));
}

}  // namespace
}  // namespace thinwire
