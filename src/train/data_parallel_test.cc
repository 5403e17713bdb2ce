// Tests of gradients by hooks: means, accumulation, parameters without a gradient, misuse.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

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

// A plain loop has none either, and its optimiser skips the parameter.
TEST(DataParallel, OfASingleRankAParameterWithoutAGradientStaysWithout) {
  run_local(1, [](Group& group) {
    Two net;
    Store store;
    DataParallel parallel(net, group, store, {});
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      net.used(input_of(0)).sum().backward();
      parallel.finish();
      EXPECT_TRUE(net.used->weight.grad().defined());
      EXPECT_FALSE(net.spare->weight.grad().defined());
    }
  });
}

TEST(DataParallel, OfASingleRankAParameterWithoutAGradientGetsWhatItsMemoryOwes) {
  run_local(1, [](Group& group) {
    Two net;
    Store store;
    DataParallel parallel(net, group, store, {.codec = "topk:density=0.5", .feedback = "residual"});
    net.spare(input_of(2)).sum().backward();
    parallel.finish();
    const torch::Tensor sent = net.spare->weight.grad().clone();
    net.zero_grad();
    net.used(input_of(0)).sum().backward();
    parallel.finish();
    ASSERT_TRUE(net.spare->weight.grad().defined());
    EXPECT_FALSE(sent.allclose(input_of(2).expand({2, 3})));
    EXPECT_TRUE((sent + net.spare->weight.grad()).allclose(input_of(2).expand({2, 3})));
  });
}

// Autograd hands both parameters views of one gradient; their means must not share memory, nor may
// the layer below see one of them.
TEST(DataParallel, GradientsThatAreViewsOfOneAreKeptApart) {
  struct Sum : torch::nn::Module {
    torch::Tensor a = register_parameter("a", torch::ones(6));
    torch::Tensor b = register_parameter("b", torch::ones(6));
    torch::nn::Linear below = register_module("below", torch::nn::Linear(4, 6));
  };
  run_local(2, [](Group& group) {
    Sum net;
    Store store;
    DataParallel parallel(net, group, store, {});
    const torch::Tensor factor = (torch::arange(6).to(torch::kFloat) + group.rank()).view({2, 3});
    const torch::Tensor x = net.below(torch::ones(4)).view({2, 3});
    ((net.a.view({2, 3}) + net.b.view({2, 3}) + x) * factor).sum().backward();
    const std::set<const void*> memory = {net.a.grad().data_ptr(), net.b.grad().data_ptr(),
                                          net.below->bias.grad().data_ptr()};
    EXPECT_EQ(memory.size(), 3u);
    parallel.finish();
    const torch::Tensor mean = torch::arange(6).to(torch::kFloat) + 0.5;
    EXPECT_TRUE(net.a.grad().equal(mean));
    EXPECT_TRUE(net.b.grad().equal(mean));
    EXPECT_TRUE(net.below->bias.grad().equal(mean));
    EXPECT_TRUE(net.below->weight.grad().equal(mean.view({6, 1}).expand({6, 4})));
  });
}

// The gradient that autograd made is the memory that the mean arrives in.
TEST(DataParallel, DoesNotCopyGradients) {
  run_local(1, [](Group& group) {
    Two net;
    Store store;
    std::vector<const void*> made;
    net.used->weight.register_hook(
        [&](const torch::Tensor& gradient) { made.push_back(gradient.data_ptr()); });
    DataParallel parallel(net, group, store, {});
    net.used(torch::ones({5, 3})).sum().backward();
    parallel.finish();
    ASSERT_EQ(made.size(), 1u);
    EXPECT_EQ(net.used->weight.grad().data_ptr(), made[0]);
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
