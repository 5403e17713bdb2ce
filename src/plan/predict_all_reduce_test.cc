// Tests of predictions of another library's all-reduce: times of rings worked out by hand.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "thinwire/step_plan.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

// Tensors of so many MiB, complete at these times of a backward pass of one second. A step takes
// 1.25.
StepTimeline timeline(const std::vector<std::pair<size_t, double>>& tensors) {
  StepTimeline found{
      .tensors = {}, .ready_seconds = {}, .backward_seconds = 1, .compute_seconds = 1.25};
  for (const auto& [size, ready] : tensors) {
    found.tensors.push_back(
        {"t" + std::to_string(found.tensors.size()), {size * kMiB / 4}, TensorKind::kLinear});
    found.ready_seconds.push_back(ready);
  }
  return found;
}

StepPrediction predict(const StepTimeline& timeline, const PlanRequest& request,
                       const AllReduceCost& cost = {}) {
  return predict_all_reduce(timeline, request, cost).value();
}

// A time that is rounded up beyond the end of the backward pass is its end, and one that is later
// cannot be.
TEST(PredictAllReduce, SendsWhatIsCompleteWithTheBackwardPass) {
  const PlanRequest request{.ranks = 2, .link = {.bits_per_second = 1e9}};
  EXPECT_NEAR(predict(timeline({{2, 1 + 5e-10}}), request).wire_seconds,
              predict(timeline({{2, 1}}), request).wire_seconds, 1e-9);
  EXPECT_GT(predict(timeline({{2, 1}}), request).wire_seconds, 0);
  EXPECT_THAT(predict_all_reduce(timeline({{2, 2}}), request, {}).status().message(),
              HasSubstr("the gradient of tensor 't0' is complete after 2 s"));
}

TEST(PredictAllReduce, SendsTwiceTheRestOfEachBucketOnARing) {
  const StepTimeline model = timeline({{40, 1}});
  for (const int ranks : {1, 2, 3, 16}) {
    const PlanRequest request{.ranks = ranks, .link = {.bits_per_second = 1e8}};
    const StepPrediction step = predict(model, request);
    const double n = ranks, bytes = 2 * (n - 1) / n * 40 * kMiB;
    EXPECT_EQ(step.method, "all-reduce");
    EXPECT_EQ(step.sent_bytes.size(), static_cast<size_t>(ranks));
    EXPECT_NEAR(step.busiest_bytes(), bytes, 1);
    EXPECT_FALSE(step.bytes_exact);
    EXPECT_NEAR(step.seconds, 1.25 + request.link.seconds_for(bytes), 1e-6) << ranks;
    EXPECT_EQ(step.limit, ranks == 1 ? StepLimit::kComputation : StepLimit::kBandwidth);
  }
}

TEST(PredictAllReduce, EachRoundOfTheRingWaitsForTheLatency) {
  const StepTimeline model = timeline({{1, 1}});
  for (const int ranks : {2, 5}) {
    const StepPrediction step = predict(model, {.ranks = ranks, .link = {.latency_seconds = 0.1}});
    EXPECT_NEAR(step.seconds, 1.25 + 2 * (ranks - 1) * 0.1, 1e-9) << ranks;
    EXPECT_EQ(step.limit, StepLimit::kLatency);
  }
}

// The first bucket is closed by the tensor with which it has 1 MiB, the next one by that with which
// it has 25.
TEST(PredictAllReduce, BucketsGoWhenTheirLastTensorIsComplete) {
  const StepTimeline model = timeline({{2, 1}, {30, 0.5}, {2, 0.25}});
  const LinkSpec link{.bits_per_second = 1e9};
  const auto seconds = [&](size_t mib) {
    return link.seconds_for(static_cast<double>(mib * kMiB));
  };
  ASSERT_LT(seconds(30), 0.5);
  EXPECT_NEAR(predict(model, {.ranks = 2, .link = link}).seconds, 1.25 + seconds(2), 1e-6);
  const StepTimeline late = timeline({{2, 1}, {20, 0.5}, {2, 0.25}});  // two in the last bucket
  EXPECT_NEAR(predict(late, {.ranks = 2, .link = link}).seconds, 1.25 + seconds(22), 1e-6);
}

TEST(PredictAllReduce, WorkOfTheThreadDelaysTheArithmeticUnlessItHasACore) {
  const StepTimeline model = timeline({{2, 0.5}, {2, 0.25}});
  const AllReduceCost cost{.seconds_per_byte = 0.1 / (2 * kMiB), .seconds_per_message = 0.005};
  const double work = 2 * (0.1 + 4 * 0.005);  // two buckets of two parts, two messages each
  const PlanRequest request{.ranks = 2, .link = {}, .own_core = true};
  EXPECT_NEAR(predict(model, request, cost).seconds, 1.25, 1e-9);
  EXPECT_EQ(predict(model, request, cost).limit, StepLimit::kComputation);
  PlanRequest shared = request;
  shared.own_core = false;
  const StepPrediction step = predict(model, shared, cost);
  EXPECT_NEAR(step.seconds, 1.25 + work, 1e-9);
  EXPECT_NEAR(step.encode_seconds, work, 1e-9);
  EXPECT_EQ(step.limit, StepLimit::kCoding);
}

// One part is added up while the other is sent: the longer of both counts, but for the first part.
TEST(PredictAllReduce, WorkAndLinkOverlap) {
  const StepTimeline model = timeline({{8, 1}});
  const LinkSpec link{.bits_per_second = 1e9};
  const double wire = link.seconds_for(static_cast<double>(8 * kMiB));
  const AllReduceCost cost{.seconds_per_byte = wire / (8 * kMiB) / 2};
  const double step = predict(model, {.ranks = 2, .link = link}, cost).seconds;
  EXPECT_GE(step, 1.25 + wire);
  EXPECT_LE(step, 1.25 + wire * 1.25);
}

TEST(PredictAllReduce, OneRankOfAMachineSendsToAnother) {
  const StepTimeline model = timeline({{40, 1}});
  const LinkSpec link{.bits_per_second = 1e8}, inside{.bits_per_second = 1e10};
  const auto seconds = [&](int per_machine) {
    return predict(model, {.ranks = 4, .link = link, .per_machine = per_machine, .inside = inside})
        .seconds;
  };
  EXPECT_EQ(seconds(2), seconds(1));
  const StepPrediction two = predict(model, {.ranks = 4, .link = {}, .per_machine = 2});
  EXPECT_EQ(two.inside_bytes,
            (std::vector<double>{two.busiest_bytes(), 0, two.busiest_bytes(), 0}));
  EXPECT_EQ(two.busiest_between(), two.busiest_bytes());
  EXPECT_EQ(predict(model, {.ranks = 4, .link = {}, .per_machine = 4}).busiest_between(), 0);
  EXPECT_NEAR(seconds(4), 1.25 + inside.seconds_for(1.5 * 40 * kMiB), 1e-6);
}

TEST(PredictAllReduce, MistakesAreSaid) {
  const auto why = [](const StepTimeline& timeline, const PlanRequest& request) {
    return std::string(predict_all_reduce(timeline, request, {}).status().message());
  };
  EXPECT_THAT(why({}, {}), HasSubstr("the model has no tensors"));
  EXPECT_THAT(why(timeline({{1, 1}}), {.ranks = 0, .link = {}}),
              HasSubstr("ranks must be at least 1, not 0"));
  EXPECT_THAT(why(timeline({{1, 1}}), {.ranks = 3, .link = {}, .per_machine = 2}),
              HasSubstr("do not make up 3 ranks"));
}

}  // namespace
}  // namespace thinwire::testing
