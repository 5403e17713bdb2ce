// Tests of predicted hierarchies: bytes at both levels are those that the exchange counts, times
// those of schedules worked out by hand.
// SPDX-License-Identifier: Apache-2.0
#include "plan/levels_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "exchange/testing/exchange_testing.h"
#include "thinwire/step_plan.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

CostTable costs_of(const ExchangeOptions& options) {
  CostTable costs;
  costs.set({.codec = "fp32"}, {});
  costs.set(options, {});
  return costs;
}

// More tensors than places, of which one has more than all others together.
std::vector<TensorSpec> held_model() {
  std::vector<TensorSpec> model = small_model();
  model.push_back({"wide.weight", {130, 301}, TensorKind::kLinear});
  model.push_back({"tall.weight", {517, 20}, TensorKind::kLinear});
  return model;
}

struct Counted {
  std::vector<double> inside, between;  // by rank
};

// Over so many steps that each group's holders were the root of even and of odd steps equally
// often.
Counted count(int ranks, const std::vector<TensorSpec>& model, const ExchangeOptions& options) {
  const uint64_t steps = std::lcm(2, ranks / options.inside);
  const auto n = static_cast<size_t>(ranks);
  Counted counted{.inside = std::vector<double>(n), .between = std::vector<double>(n)};
  run_local(ranks, [&](Group& group) {
    Side side(group, model, options);
    const auto rank = static_cast<size_t>(group.rank());
    for (uint64_t step = 0; step < steps; ++step) {
      const StepReport report = side.step(step);
      counted.inside[rank] += static_cast<double>(report.inside_bytes) / static_cast<double>(steps);
      counted.between[rank] +=
          static_cast<double>(report.between_bytes) / static_cast<double>(steps);
    }
  });
  return counted;
}

void expect_counted(int ranks, const std::vector<TensorSpec>& model,
                    const ExchangeOptions& options) {
  CostTable costs = costs_of(options);
  const StepPrediction predicted =
      predict_step(assumed_timeline(model, 1), options, {.ranks = ranks, .link = {}}, costs)
          .value();
  EXPECT_TRUE(predicted.bytes_exact);
  const Counted counted = count(ranks, model, options);
  for (size_t rank = 0; rank < counted.inside.size(); ++rank) {
    const std::string where = options.codec + " by " + options.method + ", rank " +
                              std::to_string(rank) + " of " + std::to_string(ranks) + " in " +
                              std::to_string(options.inside);
    EXPECT_NEAR(predicted.inside_bytes[rank], counted.inside[rank], 1e-6) << where;
    EXPECT_NEAR(predicted.sent_bytes[rank] - predicted.inside_bytes[rank], counted.between[rank],
                1e-6)
        << where;
  }
}

TEST(LevelsLayout, BytesAreThoseOfTheExchangeAtBothLevels) {
  for (const char* codec : {"fp32", "int8", "powersgd:rank=2"})
    for (const auto& [ranks, inside] : {std::pair(4, 2), std::pair(6, 3), std::pair(6, 2)})
      expect_counted(ranks, held_model(),
                     {.codec = codec, .inside = inside, .bucket_bytes = size_t{1} << 14});
  expect_counted(4, held_model(), {.codec = "fp16", .method = "dense", .inside = 2});
  expect_counted(4, held_model(), {.codec = "terngrad", .method = "gather", .inside = 2});
}

TEST(LevelsLayout, OneGroupSendsNothingBetweenAndSomePlacesHoldNothing) {
  expect_counted(3, held_model(), {.codec = "int8", .inside = 3});
  expect_counted(4, {{"w", {30, 40}, TensorKind::kLinear}}, {.codec = "int8", .inside = 2});
}

TEST(LevelsLayout, BytesAreThoseOfEachRuleForItsTensors) {
  const ExchangeOptions options{
      .codec = "int8", .inside = 2, .rules = {{.pattern = "wide.*", .codec = "powersgd:rank=2"}}};
  const std::vector<TensorSpec> model = held_model();
  CostTable costs = costs_of(options);
  costs.set({.codec = "powersgd:rank=2"}, {});
  const StepPrediction predicted =
      predict_step(assumed_timeline(model, 1), options, {.ranks = 4, .link = {}}, costs).value();
  const Counted counted = count(4, model, options);
  for (size_t rank = 0; rank < 4; ++rank)
    EXPECT_NEAR(predicted.sent_bytes[rank], counted.inside[rank] + counted.between[rank], 1e-6);
  EXPECT_EQ(predicted.busiest_between(),
            *std::max_element(counted.between.begin(), counted.between.end()));
}

constexpr size_t kFrame = 48;

// Two tensors of 100,000 values, one for each place of 2 groups of 2. A rank sends one whole
// inside, then halves of the other between groups and back, then the other whole inside.
TEST(LevelsLayout, SecondsAreThoseOfBothLinksOneAfterTheOther) {
  const std::vector<TensorSpec> model = {{"a", {100000}, TensorKind::kLinear},
                                         {"b", {100000}, TensorKind::kLinear}};
  const ExchangeOptions options{
      .codec = "fp32", .method = "dense", .inside = 2, .bucket_bytes = size_t{1} << 30};
  CostTable costs = costs_of(options);
  const PlanRequest request{.ranks = 4,
                            .link = {.bits_per_second = 1e7, .latency_seconds = 0.01},
                            .per_machine = 2,
                            .inside = {.bits_per_second = 1e8, .latency_seconds = 0.001}};
  const StepPrediction predicted =
      predict_step(assumed_timeline(model, 1), options, request, costs).value();
  const double inside = 8 * (4e5 + kFrame) * 1.048 / 1e8 + 0.001;
  const double between = 2 * 8 * (2e5 + kFrame) * 1.048 / 1e7 + 0.01;  // two ranks share the link
  const double agreements = 0.001 + 0.01;
  EXPECT_NEAR(predicted.seconds, 1 + 2 * inside + 2 * between + agreements, 1e-9);
  EXPECT_EQ(predicted.limit, StepLimit::kBandwidth);
  PlanRequest slow_inside = request;
  slow_inside.inside.bits_per_second = 1e6;
  EXPECT_EQ(predict_step(assumed_timeline(model, 1), options, slow_inside, costs).value().limit,
            StepLimit::kInside);
}

// The tensor that is ready first is on its way between groups while the other is being made.
TEST(LevelsLayout, BucketsOverlapTheBackwardPass) {
  const std::vector<TensorSpec> model = {{"first", {100000}, TensorKind::kLinear},
                                         {"last", {100000}, TensorKind::kLinear}};
  const ExchangeOptions options{
      .codec = "fp32", .method = "gather", .inside = 2, .bucket_bytes = 400000};
  CostTable costs = costs_of(options);
  const StepTimeline timeline{
      .tensors = model, .ready_seconds = {3, 1}, .backward_seconds = 3, .compute_seconds = 3};
  const PlanRequest request{.ranks = 4, .link = {.bits_per_second = 1e7}};
  // "last" is at place 1. Place 0 sends its own tensor between groups when the backward pass has
  // ended.
  const double one = 2 * 8 * (4e5 + kFrame + 8) * 1.048 / 1e7;
  EXPECT_NEAR(predict_step(timeline, options, request, costs).value().seconds, 3 + one, 1e-9);
}

// Without a hierarchy, 4 ranks on 2 machines: of what a rank sends to 3 others, 1/3 stays inside.
TEST(LevelsLayout, RanksWithoutHierarchyShareTheLinkOfTheirMachine) {
  const std::vector<TensorSpec> model = {{"a", {100000}, TensorKind::kLinear}};
  const ExchangeOptions options{.codec = "fp32", .method = "gather"};
  CostTable costs = costs_of(options);
  PlanRequest request{.ranks = 4, .link = {.bits_per_second = 1e7}, .per_machine = 2};
  const double message = 4e5 + kFrame + 8;
  const auto seconds = [&] {
    return predict_step(assumed_timeline(model, 1), options, request, costs).value().seconds;
  };
  EXPECT_NEAR(seconds(), 1 + 2 * 8 * 2 * message * 1.048 / 1e7, 1e-9);
  request.inside.bits_per_second = 1e6;  // is the slower one
  EXPECT_NEAR(seconds(), 1 + 8 * message * 1.048 / 1e6, 1e-9);
  request.per_machine = 4;
  EXPECT_NEAR(seconds(), 1 + 3 * 8 * message * 1.048 / 1e6, 1e-9);
  request.copy_seconds_per_byte = 1;  // nothing leaves the machine
  EXPECT_NEAR(seconds(), 1 + 3 * 8 * message * 1.048 / 1e6, 1e-9);
  EXPECT_EQ(
      predict_step(assumed_timeline(model, 1), options, request, costs).value().busiest_between(),
      std::nullopt);
}

TEST(LevelsLayout, RefusesGroupsThatAreNoMachines) {
  CostTable costs = costs_of({.codec = "fp32"});
  const StepTimeline timeline = assumed_timeline({{"w", {100}, TensorKind::kLinear}}, 1);
  const auto why = [&](const ExchangeOptions& options, const PlanRequest& request) {
    return predict_step(timeline, options, request, costs).status().message();
  };
  EXPECT_THAT(why({.inside = 3}, {.ranks = 4, .link = {}}), HasSubstr("choose one of 1, 2, 4"));
  EXPECT_THAT(why({.inside = 2}, {.ranks = 4, .link = {}, .per_machine = 4}),
              HasSubstr("choose inside = 1 or 4"));
  EXPECT_THAT(why({}, {.ranks = 4, .link = {}, .per_machine = 3}),
              HasSubstr("machines of 3 ranks do not make up 4"));
  EXPECT_THAT(why({.feedback = "ef21", .inside = 2}, {.ranks = 4, .link = {}}),
              HasSubstr("follows the mean"));
}

}  // namespace
}  // namespace thinwire::testing
