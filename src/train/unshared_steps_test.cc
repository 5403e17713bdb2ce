// Tests of measured timelines: order of gradients, a rank's part of the batch, what is refused.
// SPDX-License-Identifier: Apache-2.0
#include "train/unshared_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

constexpr double kPause = 0.02;

// Waits in the backward pass.
struct SlowBackward : torch::autograd::Function<SlowBackward> {
  static torch::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                               const torch::Tensor& values) {
    return values.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& gradients) {
    std::this_thread::sleep_for(std::chrono::duration<double>(kPause));
    return gradients;
  }
};

// Its backward pass waits between the second layer and the first, its forward pass at the start.
Task slow_task(const std::shared_ptr<ToyNet>& net, std::vector<int64_t>* batches) {
  Task task;
  task.module = net;
  task.forward = [net, batches](const torch::Tensor& inputs) {
    batches->push_back(inputs.size(0));
    std::this_thread::sleep_for(std::chrono::duration<double>(kPause));
    const torch::Tensor first = SlowBackward::apply(torch::relu(net->first(inputs)));
    return net->output(torch::relu(net->second(first)));
  };
  return task;
}

TEST(MeasuredTimeline, SaysWhenEachGradientIsComplete) {
  std::vector<int64_t> batches;
  const ToyData data(90);
  const StepTimeline timeline =
      measured_timeline(toy_recipe({}).options, slow_task(std::make_shared<ToyNet>(), &batches),
                        {.train = data, .test = data}, 2, 3);
  ASSERT_EQ(timeline.tensors.size(), 6u);
  EXPECT_EQ(timeline.tensors.front().name, "first.weight");
  EXPECT_EQ(timeline.values(), 8u * 16 + 16 + 16 * 16 + 16 + 16 * 3 + 3);
  const auto ready = [&](const std::string& name) {
    for (size_t i = 0; i < timeline.tensors.size(); ++i)
      if (timeline.tensors[i].name == name) return timeline.ready_seconds[i];
    return -1.0;
  };
  EXPECT_GE(ready("output.weight"), kPause);
  EXPECT_LE(ready("output.weight"), ready("second.weight"));
  EXPECT_GE(ready("first.weight"), ready("second.weight") + kPause);
  EXPECT_GE(timeline.backward_seconds, ready("first.weight"));
  EXPECT_GT(timeline.compute_seconds, timeline.backward_seconds);
  EXPECT_THAT(batches, ::testing::Each(10));  // half of the recipe's 20
  EXPECT_EQ(batches.size(), 5u);
}

TEST(MeasuredTimeline, WithoutStepsHasTensorsAlone) {
  std::vector<int64_t> batches;
  const ToyData data(90);
  const StepTimeline timeline =
      measured_timeline(toy_recipe({}).options, slow_task(std::make_shared<ToyNet>(), &batches),
                        {.train = data, .test = data}, 2, 0);
  EXPECT_EQ(timeline.tensors.size(), 6u);
  EXPECT_EQ(timeline.compute_seconds, 0);
  EXPECT_TRUE(batches.empty());
}

TEST(MeasuredTimeline, IsOfWholeNetworks) {
  const ToyData data(90);
  const auto measure = [&](const Settings& settings) {
    return measured_timeline(toy_recipe(settings).options, task_of_net(std::make_shared<ToyNet>()),
                             {.train = data, .test = data}, 2, 1);
  };
  EXPECT_GT(measure({{"sync.method", "average"}}).compute_seconds, 0);  // a step without its round
  EXPECT_GT(measure({{"train.epochs", "0"}}).compute_seconds, 0);
  EXPECT_THAT(
      [&] {
        measure({{"pipeline.stages", "2"}});
      },
      ::testing::ThrowsMessage<Error>(HasSubstr("pipeline.stages")));
}

}  // namespace
}  // namespace thinwire
