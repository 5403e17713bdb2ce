// Tests of data, model and hybrid parallelism against Das et al., 2016.
// SPDX-License-Identifier: Apache-2.0
#include "plan/layer_parallel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "thinwire/step_plan.h"

namespace thinwire {
namespace {

constexpr double square(double side) { return side * side; }

// A convolution with a padding that keeps the area.
constexpr LayerShape convolution(double inputs, double outputs, double kernel, double side) {
  return {.inputs = inputs,
          .outputs = outputs,
          .kernel = square(kernel),
          .in_area = square(side),
          .out_area = square(side)};
}
constexpr LayerShape connected(double inputs, double outputs) {
  return {.inputs = inputs, .outputs = outputs};
}

// VGG-A [Simonyan and Zisserman, 2015], 224 x 224.
const std::vector<LayerShape>& vgg_a() {
  static const std::vector<LayerShape> layers = {
      convolution(3, 64, 3, 224),   convolution(64, 128, 3, 112), convolution(128, 256, 3, 56),
      convolution(256, 256, 3, 56), convolution(256, 512, 3, 28), convolution(512, 512, 3, 28),
      convolution(512, 512, 3, 14), convolution(512, 512, 3, 14), connected(25088, 4096),
      connected(4096, 4096),        connected(4096, 1000)};
  return layers;
}

// OverFeat, the fast model [Sermanet et al., 2014], 231 x 231.
const std::vector<LayerShape>& overfeat_fast() {
  static const std::vector<LayerShape> layers = {
      {.inputs = 3, .outputs = 96, .kernel = 121, .in_area = square(231), .out_area = square(56)},
      {.inputs = 96, .outputs = 256, .kernel = 25, .in_area = square(28), .out_area = square(24)},
      convolution(256, 512, 3, 12),
      convolution(512, 1024, 3, 12),
      convolution(1024, 1024, 3, 12),
      connected(36864, 3072),
      connected(3072, 4096),
      connected(4096, 1000)};
  return layers;
}

// With one way hidden: 1.5 x out_w x out_h x samples operations per byte.
TEST(LayerParallel, DataParallelConvolutionsHaveOperationsForEachByte) {
  const LayerShape layer = convolution(512, 512, 3, 14);
  const double bytes = layer_bytes(layer, 256, 64, 64, /*overlap=*/1);
  EXPECT_DOUBLE_EQ(bytes, 4 * 512 * 512 * 9.0);
  EXPECT_DOUBLE_EQ(layer_operations(layer, 4) / bytes, 1.5 * 14 * 14 * 4);
}

TEST(LayerParallel, ModelParallelismSendsActivationsBothWays) {
  EXPECT_DOUBLE_EQ(layer_bytes(connected(1000, 77), 256, 64, 1), 2 * 4 * 1000 * 256.0);
}

TEST(LayerParallel, FullyConnectedLayersCrossOverWhereOutputsAreTheMinibatch) {
  for (const double minibatch : {64.0, 256.0, 1024.0}) {
    EXPECT_FALSE(prefers_model(connected(5000, minibatch), minibatch));
    EXPECT_TRUE(prefers_model(connected(5000, minibatch + 1), minibatch));
    // With one way of the gradients hidden, at twice as many.
    EXPECT_FALSE(prefers_model(connected(5000, 2 * minibatch), minibatch, 1));
    EXPECT_TRUE(prefers_model(connected(5000, 2 * minibatch + 1), minibatch, 1));
  }
}

TEST(LayerParallel, TheCrossoverIsThatOfTheBytesOfBoth) {
  for (const double outputs : {100.0, 256.0, 300.0, 4096.0})
    for (const double overlap : {0.0, 0.5, 1.0}) {
      const LayerShape layer = connected(1000, outputs);
      EXPECT_EQ(prefers_model(layer, 256, overlap),
                layer_bytes(layer, 256, 64, 1, overlap) < layer_bytes(layer, 256, 64, 64, overlap));
    }
}

TEST(LayerParallel, ConvolutionsOfBothNetworksAreDataParallelAtTheirMinibatches) {
  for (const auto& [layers, minibatch] :
       {std::pair(vgg_a(), 512.0), std::pair(vgg_a(), 256.0), std::pair(overfeat_fast(), 256.0)})
    for (const LayerShape& layer : layers)
      EXPECT_EQ(prefers_model(layer, minibatch), layer.kernel == 1) << layer.inputs;
}

// Of all numbers of groups, not only divisors, none sends less than those next to the stationary
// one.
TEST(LayerParallel, TheStationaryNumberOfGroupsIsTheBest) {
  for (const double outputs : {512.0, 1024.0, 2048.0})
    for (const double minibatch : {256.0, 512.0}) {
      const LayerShape layer = connected(9216, outputs);
      const double groups = stationary_groups(layer, minibatch, 128);
      EXPECT_DOUBLE_EQ(groups, std::sqrt(128 * minibatch / outputs));
      const auto bytes = [&](double g) {
        return layer_bytes(layer, minibatch, 128, static_cast<size_t>(g));
      };
      const double best = std::min(bytes(std::floor(groups)), bytes(std::ceil(groups)));
      for (size_t other = 2; other < 128; ++other)
        EXPECT_GE(layer_bytes(layer, minibatch, 128, other), best);
    }
}

TEST(LayerParallel, HybridsSendLessThanBoth) {
  const LayerShape layer = connected(4096, 1000);
  EXPECT_EQ(best_groups(layer, 256, 64), 4u);  // sqrt(64 x 256 / 1000) is 4.05
  const double hybrid = layer_bytes(layer, 256, 64, 4);
  EXPECT_LT(hybrid, 0.51 * layer_bytes(layer, 256, 64, 1));
  EXPECT_LT(hybrid, 0.13 * layer_bytes(layer, 256, 64, 64));
  EXPECT_EQ(best_groups(convolution(64, 128, 3, 112), 256, 64), 64u);
}

TEST(LayerParallel, ConvolutionsAloneScaleWithTheNodes) {
  const std::vector<LayerShape> layers(vgg_a().begin(), vgg_a().begin() + 8);
  EXPECT_DOUBLE_EQ(predicted_speed_up(layers, 256, 64, 1e3), 64);
}

// Part-reduce sends each strip of the gradient to its owner, part-broadcast hands out the owners'
// strips: method dense.
TEST(LayerParallel, PartReduceAndPartBroadcastAreADenseExchange) {
  const LayerShape layer = connected(1024, 512);
  CostTable costs;
  costs.set({.codec = "fp32"}, {});
  for (const int nodes : {16, 128}) {
    const StepTimeline timeline = assumed_timeline({{"w", {512, 1024}, TensorKind::kLinear}}, 1);
    const StepPrediction step = predict_step(timeline, {.codec = "fp32", .method = "dense"},
                                             {.ranks = nodes, .link = {}}, costs)
                                    .value();
    const auto n = static_cast<size_t>(nodes);
    const double volume =
        layer_bytes(layer, 256, n, n) * (nodes - 1) / nodes;  // strips of its own stay
    const double frames = 2 * (nodes - 1) * 2 * 48.0;  // a strip may be cut where buckets end
    EXPECT_GE(step.busiest_bytes(), volume);
    EXPECT_LE(step.busiest_bytes(), volume + 2 * frames + 64);
  }
}

// What a node computes in the time of a byte, if VGG-A is 53 times as fast on 64 nodes.
double operations_per_byte_of_the_paper() {
  double low = 0, high = 1e6;
  while (high - low > 1e-6 * high) {
    const double middle = (low + high) / 2;
    (predicted_speed_up(vgg_a(), 256, 64, middle) > 53 ? low : high) = middle;
  }
  return low;
}

// At a minibatch of 512 the curve rises up to 128 nodes, with 90/128 of the ideal there at least.
TEST(LayerParallel, TheCurveRisesTo128Nodes) {
  const double operations = operations_per_byte_of_the_paper();
  double before = 0, share = 1.001;
  for (const size_t nodes : {1, 2, 4, 8, 16, 32, 64, 128}) {
    const double speed_up = predicted_speed_up(vgg_a(), 512, nodes, operations);
    EXPECT_GT(speed_up, before) << nodes;
    EXPECT_LT(speed_up / static_cast<double>(nodes), share) << nodes;
    EXPECT_GT(speed_up / static_cast<double>(nodes), 90.0 / 128) << nodes;
    before = speed_up;
    share = speed_up / static_cast<double>(nodes) + 1e-12;
  }
}

// The paper's 53 x for VGG-A on 64 nodes fixes what a node computes in the time of a byte. From
// that follow 42 x for OverFeat-FAST on as many nodes within a tenth, and 90 x for VGG-A on 128
// nodes from above: four images per node as before, whose convolutions no longer run at full speed,
// are not in the model.
TEST(LayerParallel, ScalesAsThePaperMeasured) {
  const double operations = operations_per_byte_of_the_paper();
  EXPECT_NEAR(predicted_speed_up(overfeat_fast(), 256, 64, operations), 42, 4.2);
  const double of_128 = predicted_speed_up(vgg_a(), 512, 128, operations);
  EXPECT_GT(of_128, 90);
  EXPECT_LT(of_128, 1.2 * 90);
}

}  // namespace
}  // namespace thinwire
