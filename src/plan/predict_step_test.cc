// Tests of predictions: bytes are those that the exchange counts, times those of schedules worked
// out by hand.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "exchange/testing/exchange_testing.h"
#include "thinwire/step_plan.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

// Without measuring: bytes of codecs of fixed size do not depend on costs.
CostTable costs_of(const ExchangeOptions& options, const CodecCost& cost = {}) {
  CostTable costs;
  costs.set({.codec = "fp32"}, cost);
  costs.set(options, cost);
  return costs;
}

// Two buckets' worth of weights and all that small_model has: chunks of several streams, streams of
// several chunks, streams that few ranks own a part of.
std::vector<TensorSpec> planned_model() {
  std::vector<TensorSpec> model = small_model();
  model.push_back({"wide.weight", {130, 301}, TensorKind::kLinear});
  model.push_back({"wide.bias", {301}, TensorKind::kBias});
  model.push_back({"tall.weight", {517, 20}, TensorKind::kLinear});
  return model;
}

// Of each rank, over so many steps that each was the root of even and of odd steps equally often.
std::vector<double> counted_bytes(int ranks, const std::vector<TensorSpec>& model,
                                  const ExchangeOptions& options) {
  const uint64_t steps = std::lcm(2, ranks);
  std::vector<double> bytes(static_cast<size_t>(ranks));
  run_local(ranks, [&](Group& group) {
    Side side(group, model, options);
    for (uint64_t step = 0; step < steps; ++step)
      bytes[static_cast<size_t>(group.rank())] += static_cast<double>(side.step(step).sent_bytes);
  });
  for (double& sum : bytes) sum /= static_cast<double>(steps);
  return bytes;
}

StepPrediction predict(const std::vector<TensorSpec>& model, const ExchangeOptions& options,
                       const PlanRequest& request, CostTable& costs) {
  return predict_step(assumed_timeline(model, 1), options, request, costs).value();
}

class PlannedBytes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, PlannedBytes, ::testing::Range(1, 9));

TEST_P(PlannedBytes, AreThoseThatTheExchangeCounts) {
  const int ranks = GetParam();
  size_t exact = 0;
  for (ExchangeOptions options : codecs_and_methods()) {
    options.bucket_bytes = size_t{1} << 15;
    options.chunk_values = 2000;
    CostTable costs = costs_of(options);
    const StepPrediction predicted =
        predict(planned_model(), options, {.ranks = ranks, .link = {}}, costs);
    if (!predicted.bytes_exact) continue;
    ++exact;
    const std::vector<double> counted = counted_bytes(ranks, planned_model(), options);
    for (size_t rank = 0; rank < counted.size(); ++rank)
      EXPECT_NEAR(predicted.sent_bytes[rank], counted[rank], 1e-6)
          << options.codec << " by " << options.method << ", rank " << rank;
  }
  EXPECT_GE(exact, 40u);
}

TEST(PlannedBytes, AreExactForEveryCodecOfFixedSize) {
  for (const ExchangeOptions& options : codecs_and_methods()) {
    if (options.method == "sparse-reduce" || options.method == "shared-index") continue;
    CostTable costs = costs_of(options);
    const bool fixed = terms_of(options).codec->info().fixed_size;
    const bool by_rounds = options.method == "low-rank";
    EXPECT_EQ(predict(planned_model(), options, {.ranks = 4, .link = {}}, costs).bytes_exact,
              fixed || by_rounds)
        << options.codec << " by " << options.method;
  }
}

TEST(PlannedBytes, AreThoseOfEachRuleForItsTensors) {
  const ExchangeOptions options{.codec = "int8",
                                .rules = {{.pattern = "wide.*", .codec = "powersgd:rank=2"},
                                          {.pattern = "conv.*", .codec = "fp16"}},
                                .bucket_bytes = size_t{1} << 14};
  CostTable costs = costs_of(options);
  costs.set({.codec = "powersgd:rank=2"}, {});
  costs.set({.codec = "fp16"}, {});
  const StepPrediction predicted =
      predict(planned_model(), options, {.ranks = 3, .link = {}}, costs);
  EXPECT_EQ(predicted.method, "scatter-reduce, low-rank");
  EXPECT_TRUE(predicted.bytes_exact);
  EXPECT_THAT(predicted.sent_bytes,
              ::testing::Pointwise(::testing::DoubleNear(1e-6),
                                   counted_bytes(3, planned_model(), options)));
}

// What a codec's payloads have is measured on other values than those that are sent.
TEST(PlannedBytes, AreNearTheCountedOnesOfSparseCodecs) {
  const std::vector<TensorSpec> model = {{"a", {512, 300}, TensorKind::kLinear},
                                         {"b", {700, 300}, TensorKind::kLinear}};
  for (const std::string method : {"gather", "sparse-reduce"})
    for (const int ranks : {2, 4, 8}) {
      const ExchangeOptions options{.codec = "topk:density=0.01", .method = method};
      CostTable costs;
      const StepPrediction predicted = predict(model, options, {.ranks = ranks, .link = {}}, costs);
      const std::vector<double> counted = counted_bytes(ranks, model, options);
      EXPECT_FALSE(predicted.bytes_exact);
      const auto total = [](const std::vector<double>& bytes) {
        return std::accumulate(bytes.begin(), bytes.end(), 0.0);
      };
      EXPECT_NEAR(total(predicted.sent_bytes) / total(counted), 1, 0.1) << method << " " << ranks;
    }
}

// Each rank is the root of one step in n, and sends its positions to all others.
TEST(PlannedBytes, CountRootsInTurn) {
  for (const int ranks : {2, 3, 4, 7}) {
    const ExchangeOptions options{.codec = "test-leader", .method = "shared-index"};
    CostTable costs = costs_of(options);
    const std::vector<TensorSpec> model = {{"w", {64, 100}, TensorKind::kLinear}};
    const StepPrediction predicted = predict(model, options, {.ranks = ranks, .link = {}}, costs);
    EXPECT_FALSE(predicted.bytes_exact);
    const std::vector<double> counted = counted_bytes(ranks, model, options);
    for (size_t rank = 0; rank < counted.size(); ++rank)
      EXPECT_NEAR(predicted.sent_bytes[rank], counted[rank], 1e-6) << ranks << " " << rank;
  }
}

// The leader's positions and labels may take less than their bound; the floats of means are those
// that travel.
TEST(PlannedBytes, AreNearTheCountedOnesOfRoundsFromARoot) {
  const std::vector<TensorSpec> model = {{"a", {512, 300}, TensorKind::kLinear},
                                         {"b", {700, 300}, TensorKind::kLinear}};
  for (const std::string codec :
       {"scalecom:density=0.05", "lgc:density=0.05", "lgc:density=0.05,train=true"})
    for (const int ranks : {2, 3}) {
      const ExchangeOptions options{.codec = codec, .method = "shared-index"};
      CostTable costs = costs_of(options);
      const StepPrediction predicted = predict(model, options, {.ranks = ranks, .link = {}}, costs);
      const std::vector<double> counted = counted_bytes(ranks, model, options);
      for (size_t rank = 0; rank < counted.size(); ++rank)
        EXPECT_NEAR(predicted.sent_bytes[rank] / counted[rank], 1, 0.1) << codec << " " << rank;
    }
}

// Of memories, and of what ranks keep of the shards that they own.
TEST(PlannedMemory, IsWhatTheStoreOfAnExchangeHolds) {
  const std::vector<TensorSpec> model = {{"a", {512, 300}, TensorKind::kLinear},
                                         {"b", {700, 300}, TensorKind::kLinear}};
  const double values = 512 * 300 + 700 * 300;
  const struct {
    ExchangeOptions options;
    double per_value;  // with 4 ranks
  } cases[] = {
      {{.codec = "fp16"}, 0},
      {{.codec = "topk:density=0.01", .method = "gather"}, 8},
      {{.codec = "topk:density=0.01", .method = "sparse-reduce"}, 8 + 8 / 4.0},
      {{.codec = "sign", .method = "scatter-reduce"}, 8 + 8 / 4.0},
      {{.codec = "qsgd", .feedback = "residual", .method = "scatter-reduce"}, 8},  // unbiased
      {{.codec = "int4", .feedback = "loco", .method = "scatter-reduce"}, 5 + 8 / 4.0},
      {{.codec = "topk:density=0.01", .feedback = "ef21", .method = "gather"}, 12},
      {{.codec = "topk:density=0.01", .feedback = "ahead", .method = "gather"}, 16},
      {{.codec = "fp32", .feedback = "velocity:nesterov=true"}, 12},
  };
  for (const auto& [options, per_value] : cases) {
    CostTable costs;
    const double predicted =
        predict(model, options, {.ranks = 4, .link = {}}, costs).memory_bytes / values;
    EXPECT_NEAR(predicted, per_value, 0.05) << options.codec << " / " << options.feedback;
    run_local(4, [&](Group& group) {
      Side side(group, model, options);
      for (uint64_t step = 0; step < 2; ++step) side.step(step);
      EXPECT_NEAR(static_cast<double>(side.store().held_bytes()) / values, per_value, 0.05)
          << options.codec << " / " << options.feedback << ", rank " << group.rank();
    });
  }
}

// One tensor, one bucket, no latency: 2 ranks send half of 8,000,000 bytes each way, one after the
// other, where a chunk is the whole.
TEST(PlannedSeconds, OfALongMessageAreThoseOfItsBytes) {
  const std::vector<TensorSpec> model = {{"w", {2000000}, TensorKind::kLinear}};
  const ExchangeOptions options{
      .codec = "fp32", .method = "dense", .bucket_bytes = size_t{1} << 30};
  CostTable costs = costs_of(options);
  const StepPrediction predicted =
      predict(model, options, {.ranks = 2, .link = {.bits_per_second = 1e8}}, costs);
  const double wire = 2 * 8 * (4e6 + 48) * 1.048 / 1e8;
  EXPECT_NEAR(predicted.seconds, 1 + wire, 1e-9);  // all is complete at the end of the step
  EXPECT_NEAR(predicted.wire_seconds, wire, 1e-9);
  EXPECT_EQ(predicted.limit, StepLimit::kBandwidth);
}

TEST(PlannedSeconds, CountEachWayAndTheAgreement) {
  const std::vector<TensorSpec> model = {{"w", {8000}, TensorKind::kLinear}};
  const ExchangeOptions options{.codec = "fp32", .method = "dense"};
  CostTable costs = costs_of(options);
  const StepPrediction predicted = predict(
      model, options, {.ranks = 4, .link = {.bits_per_second = 0, .latency_seconds = 0.5}}, costs);
  EXPECT_NEAR(predicted.seconds, 1 + 2 * 0.5 + 2 * 0.5, 1e-9);  // parts, means, log2 4 messages
  EXPECT_EQ(predicted.limit, StepLimit::kLatency);
}

// Nobody agrees over a link that no rank needs.
TEST(PlannedSeconds, OfRanksOnOneMachineDoNotDependOnTheLinkBetweenMachines) {
  CostTable costs = costs_of({.codec = "int8"});
  const auto seconds = [&](double latency) {
    return predict(planned_model(), {.codec = "int8"},
                   {.ranks = 4,
                    .link = {.bits_per_second = 1e6, .latency_seconds = latency},
                    .per_machine = 4,
                    .inside = {.bits_per_second = 1e9}},
                   costs)
        .seconds;
  };
  EXPECT_EQ(seconds(0.02), seconds(0));
}

// Per value 1 us to encode and to decode: a rank encodes its own, and decodes those of two.
TEST(PlannedSeconds, CountTheFactorOfTheThread) {
  const std::vector<TensorSpec> model = {{"w", {200000}, TensorKind::kLinear}};
  const ExchangeOptions options{.codec = "fp32", .method = "gather"};
  CostTable costs =
      costs_of(options, {.encode_seconds_per_value = 1e-6, .decode_seconds_per_value = 1e-6});
  PlanRequest request{.ranks = 2, .link = {}};
  const StepPrediction once = predict(model, options, request, costs);
  EXPECT_NEAR(once.seconds, 1 + 0.2 + 2 * 0.2, 1e-9);
  request.thread_factor = 2.5;
  const StepPrediction slower = predict(model, options, request, costs);
  EXPECT_NEAR(slower.seconds, 1 + 2.5 * (0.2 + 2 * 0.2), 1e-9);
  EXPECT_NEAR(slower.encode_seconds, 2.5 * once.encode_seconds, 1e-9);
  EXPECT_NEAR(slower.decode_seconds, 2.5 * once.decode_seconds, 1e-9);
  EXPECT_EQ(slower.limit, StepLimit::kCoding);
}

// A rank sends as many bytes as it receives; half of what a byte costs falls on each.
TEST(PlannedSeconds, CountCopies) {
  const std::vector<TensorSpec> model = {{"w", {200000}, TensorKind::kLinear}};
  const ExchangeOptions options{.codec = "fp32", .method = "gather"};
  CostTable costs = costs_of(options, {});
  PlanRequest request{.ranks = 3, .link = {.bits_per_second = 1e9}};
  const StepPrediction without = predict(model, options, request, costs);
  request.copy_seconds_per_byte = 1e-6;
  const StepPrediction with = predict(model, options, request, costs);
  EXPECT_NEAR(with.seconds - without.seconds, 1e-6 * with.busiest_bytes(), 1e-3);
  EXPECT_EQ(with.encode_seconds, without.encode_seconds);
  EXPECT_EQ(with.limit, StepLimit::kCoding);
}

// The later half of the backward pass hides what the first tensors need.
TEST(PlannedSeconds, OverlapTheBackwardPassByBuckets) {
  const std::vector<TensorSpec> model = {{"first", {100000}, TensorKind::kLinear},
                                         {"last", {100000}, TensorKind::kLinear}};
  const ExchangeOptions options{.codec = "fp32", .method = "dense", .bucket_bytes = 400000};
  CostTable costs = costs_of(options);
  StepTimeline timeline{
      .tensors = model, .ready_seconds = {3, 1}, .backward_seconds = 3, .compute_seconds = 4};
  const double one = 2 * 8 * (200000 + 48) * 1.048 / 1e7;  // of a bucket: 0.335 s
  const PlanRequest request{.ranks = 2, .link = {.bits_per_second = 1e7}};
  EXPECT_NEAR(predict_step(timeline, options, request, costs).value().seconds, 4 + one, 1e-9);
  timeline.ready_seconds = {1, 1};
  EXPECT_NEAR(predict_step(timeline, options, request, costs).value().seconds, 4, 1e-9);
  EXPECT_EQ(predict_step(timeline, options, request, costs).value().limit, StepLimit::kComputation);
}

// Per value 1 us each way; 2 ranks: each encodes all of its 100,000 values for the others or
// itself.
TEST(PlannedSeconds, OfCodingDelayTheBackwardPassWithoutACoreOfItsOwn) {
  const std::vector<TensorSpec> model = {{"first", {100000}, TensorKind::kLinear},
                                         {"last", {100000}, TensorKind::kLinear}};
  const ExchangeOptions options{.codec = "fp32", .method = "gather", .bucket_bytes = 400000};
  CostTable costs =
      costs_of(options, {.encode_seconds_per_value = 2e-6, .decode_seconds_per_value = 1e-6});
  const StepTimeline timeline{
      .tensors = model, .ready_seconds = {3, 1}, .backward_seconds = 3, .compute_seconds = 3};
  PlanRequest request{.ranks = 2, .link = {}};
  const double bucket = 0.2 + 2 * 0.1;  // encoded, and decoded from 2 ranks
  const StepPrediction own = predict_step(timeline, options, request, costs).value();
  EXPECT_NEAR(own.seconds, 3 + bucket, 1e-9);
  EXPECT_EQ(own.limit, StepLimit::kCoding);
  request.own_core = false;
  const StepPrediction shared = predict_step(timeline, options, request, costs).value();
  EXPECT_NEAR(shared.seconds, 3 + 2 * bucket, 1e-9);
  EXPECT_NEAR(shared.encode_seconds, 0.4, 1e-9);
  EXPECT_NEAR(shared.decode_seconds, 0.4, 1e-9);
}

// Costs that were set, and not read from a file, have no bounds: neither infinity nor seconds
// beside which those of the backward pass are lost in rounding keep a prediction from its end.
TEST(PlannedSeconds, OfAnyCostsComeToAnEnd) {
  const std::vector<TensorSpec> model = {{"first", {100000}, TensorKind::kLinear},
                                         {"last", {100000}, TensorKind::kLinear}};
  const ExchangeOptions options{.codec = "fp32", .method = "dense", .bucket_bytes = 400000};
  const StepTimeline timeline{.tensors = model,
                              .ready_seconds = {0.5, 0.499999},
                              .backward_seconds = 1,
                              .compute_seconds = 1};
  for (const bool own_core : {true, false}) {
    const PlanRequest request{.ranks = 2, .link = {.bits_per_second = 1e9}, .own_core = own_core};
    CostTable infinite = costs_of(options, {.encode_seconds_per_value = 1e308});
    EXPECT_TRUE(predict_step(timeline, options, request, infinite));
    CostTable large = costs_of(options, {.encode_seconds_per_value = 1e6});
    EXPECT_NEAR(predict_step(timeline, options, request, large).value().seconds, 2e11, 1e6);
  }
}

// The window of scatter-reduce: at 2 ranks 32 chunks, each of which needs a round trip.
TEST(PlannedSeconds, AreBoundByCreditsOverALongWay) {
  const std::vector<TensorSpec> model = {{"w", {256, 512}, TensorKind::kLinear}};
  const ExchangeOptions options{.codec = "fp32", .chunk_values = 1024};  // 64 chunks for each owner
  CostTable costs = costs_of(options);
  const StepPrediction predicted = predict(
      model, options, {.ranks = 2, .link = {.bits_per_second = 0, .latency_seconds = 0.25}}, costs);
  EXPECT_EQ(predicted.method, "scatter-reduce");
  EXPECT_NEAR(predicted.seconds, 1 + 2 * (64 / 32) * 0.25 + 0.25, 1e-9);
}

TEST(PlannedSeconds, BreakEvenIsWhereBothTakeTheSameTime) {
  const std::vector<TensorSpec> model = {{"w", {1000, 1000}, TensorKind::kLinear}};
  const ExchangeOptions dense{.codec = "fp32"}, compressed{.codec = "int8"};
  CostTable costs = costs_of(dense);
  costs.set(compressed, {.encode_seconds_per_value = 1e-8, .decode_seconds_per_value = 1e-8});
  const StepTimeline timeline = assumed_timeline(model, 0.1);
  PlanRequest request{.ranks = 4, .link = {}};
  const double rate = break_even_rate(timeline, compressed, dense, request, costs).value();
  EXPECT_GT(rate, 1e6);
  EXPECT_LT(rate, 1e11);
  const auto gain_at = [&](double bits) {
    request.link.bits_per_second = bits;
    return predict_step(timeline, dense, request, costs).value().seconds -
           predict_step(timeline, compressed, request, costs).value().seconds;
  };
  EXPECT_GT(gain_at(rate / 1.1), 0);
  EXPECT_LT(gain_at(rate * 1.1), 0);
  EXPECT_EQ(break_even_rate(timeline, dense, dense, request, costs).value(), 0);
  EXPECT_LT(break_even_rate(timeline, compressed, dense, request, costs, 1.5).value(), rate / 1.1);
}

TEST(PlannedSteps, RefuseWhatIsNotPlayed) {
  const StepTimeline timeline = assumed_timeline({{"w", {100}, TensorKind::kLinear}}, 1);
  CostTable costs = costs_of({.codec = "fp32"});
  const auto why = [&](const ExchangeOptions& options, int ranks) {
    return predict_step(timeline, options, {.ranks = ranks, .link = {}}, costs).status().message();
  };
  EXPECT_THAT(why({.method = "library"}, 2), HasSubstr("'library'"));
  EXPECT_THAT(why({.combine = "median"}, 2), HasSubstr("'median'"));
  EXPECT_THAT(why({.columns = 2}, 2), HasSubstr("columns"));
  EXPECT_THAT(why({}, 0), HasSubstr("1 to 65534"));
  EXPECT_THAT(why({.codec = "topp"}, 2), HasSubstr("topp"));
  EXPECT_THAT(why({.codec = "int8", .method = "low-rank"}, 2), HasSubstr("low-rank"));
  EXPECT_THAT(predict_step({}, {}, {}, costs).status().message(), HasSubstr("no tensors"));
}

// What is complete after the backward pass would never be sent.
TEST(PlannedSteps, RefuseTimesThatCannotBe) {
  const double never = std::numeric_limits<double>::quiet_NaN();
  CostTable costs = costs_of({.codec = "fp32"});
  const auto why = [&](double ready, double backward, double step) {
    const StepTimeline timeline{.tensors = {{"w", {100}, TensorKind::kLinear}},
                                .ready_seconds = {ready},
                                .backward_seconds = backward,
                                .compute_seconds = step};
    return std::string(
        predict_step(timeline, {}, {.ranks = 2, .link = {}}, costs).status().message());
  };
  EXPECT_EQ(why(1, 1, 1.5), "");
  EXPECT_EQ(why(0.1 + 0.2, 0.3, 0.3), "");  // rounding
  for (const double ready : {2.0, -0.5, never})
    EXPECT_THAT(why(ready, 1, 1), HasSubstr("the gradient of tensor 'w' is complete after"));
  EXPECT_THAT(why(2, 1, 1),
              HasSubstr("after 2 s; that is from 0 to the end of the backward pass, 1 s"));
  for (const double backward : {-1.0, never, std::numeric_limits<double>::infinity()})
    EXPECT_THAT(why(0, backward, 1), HasSubstr("the backward pass ends after"));
  EXPECT_THAT(why(0, 1, never), HasSubstr("the step after nan s"));
}

}  // namespace
}  // namespace thinwire::testing
