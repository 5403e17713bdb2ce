// Tests of predicted local methods: bytes are those that workers count, times those of schedules
// worked out by hand.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <string>
#include <vector>

#include "plan/leader_round.h"
#include "sync/testing/sync_testing.h"
#include "sync/worker_groups.h"
#include "thinwire/codec.h"
#include "thinwire/frame.h"
#include "thinwire/local_plan.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

// Whatever memory a method chooses.
CostTable costs_of(const std::string& codec, const CodecCost& cost = {}) {
  CostTable costs;  // rounds measure no norms
  costs.set({.codec = "fp32", .norms = false}, cost);
  costs.set({.codec = codec, .norms = false}, cost);
  if (codec == "fp32") return costs;
  for (const char* memory : {"none", "residual", "ef21", "residual:beta=0.95"})
    costs.set({.codec = codec, .feedback = memory, .norms = false}, cost);
  return costs;
}

StepTimeline timeline_of(const std::vector<TensorSpec>& tensors, double seconds) {
  return assumed_timeline(tensors, seconds);
}

// Bytes per step of each rank.
std::vector<double> counted(int ranks, const SynchroniserOptions& options, uint64_t steps) {
  std::vector<double> bytes(static_cast<size_t>(ranks));
  run_local(ranks, [&](Group& group) {
    Worker worker(group, options);
    for (uint64_t step = 0; step < steps; ++step)
      if (const auto report = worker.step())
        bytes[static_cast<size_t>(group.rank())] +=
            static_cast<double>(report->sent_bytes) / static_cast<double>(steps);
  });
  return bytes;
}

TEST(PredictedLocal, BytesOfMeansAreThoseThatWorkersCount) {
  for (const std::string method : {"average:tau=2", "easgd:tau=3", "diloco:tau=2",
                                   "sparseloco:tau=2", "downpour:tau=1", "parle:tau=2"})
    for (const std::string codec : {"fp32", "int8"})
      for (const int ranks : {2, 3, 5}) {
        const SynchroniserOptions options{.method = method, .codec = codec};
        CostTable costs = costs_of(codec);
        const StepPrediction predicted =
            predict_local_steps(timeline_of(vector_model(), 1), options,
                                {.ranks = ranks, .link = {}}, costs)
                .value();
        EXPECT_TRUE(predicted.bytes_exact) << method << " " << codec;
        const std::vector<double> sent = counted(ranks, options, 6);
        for (size_t rank = 0; rank < sent.size(); ++rank)
          EXPECT_NEAR(predicted.sent_bytes[rank], sent[rank], 1e-6)
              << method << " " << codec << " " << ranks;
      }
}

TEST(PredictedLocal, BytesOfGossipAreThoseThatWorkersCount) {
  for (const std::string graph : {"one-peer", "exponential", "ring"})
    for (const int ranks : {2, 5, 8}) {
      const SynchroniserOptions options{.method = "gossip:tau=2,graph=" + graph};
      CostTable costs = costs_of("fp32");
      const StepPrediction predicted = predict_local_steps(timeline_of(vector_model(), 1), options,
                                                           {.ranks = ranks, .link = {}}, costs)
                                           .value();
      EXPECT_TRUE(predicted.bytes_exact);
      const std::vector<double> sent = counted(ranks, options, 12);
      for (size_t rank = 0; rank < sent.size(); ++rank)
        EXPECT_NEAR(predicted.sent_bytes[rank], sent[rank], 1e-6) << graph << " " << ranks;
    }
}

double frame_bytes(const std::string& codec) {
  const StreamSpec stream{.name = "weights", .tensors = vector_model()};
  return static_cast<double>(kFrameHeaderSize +
                             make_codec(codec).value().codec->max_encoded_size(stream));
}

std::vector<int> first_of_each(const std::vector<int>& colours) {
  std::vector<int> first;
  for (size_t rank = 0; rank < colours.size(); ++rank)
    if (rank == 0 || colours[rank] != colours[rank - 1]) first.push_back(static_cast<int>(rank));
  return first;
}

// Whoever leads.
TEST(PredictedLocal, FramesOfLeadersTakeTheRoutesOfWorkers) {
  for (const std::string codec : {"fp32", "int8"})
    for (const auto& [ranks, count] : {std::pair(5, 2), std::pair(4, 1), std::pair(7, 3)}) {
      const std::vector<int> colours = neighbour_colours(ranks, count);
      const SynchroniserOptions options{
          .method = "leader:tau=2,tau_global=4,groups=" + std::to_string(count), .codec = codec};
      std::atomic<int> rounds = 0;
      run_local(ranks, [&](Group& group) {
        Worker worker(group, options);
        const auto rank = static_cast<size_t>(group.rank());
        for (int step = 0; step < 12; ++step) {
          const auto report = worker.step();
          if (!report) continue;
          ++rounds;
          LeaderRound round{.colours = colours,
                            .global = report->global,
                            .local = count > 1,
                            .frame_bytes = frame_bytes(codec),
                            .own_leaders = report->leaders,
                            .leader = report->leader};
          if (!report->global)  // what the others do is nothing to this rank
            round.own_leaders = first_of_each(colours);
          if (!report->global)
            round.own_leaders[static_cast<size_t>(colours[rank])] = report->leaders.front();
          const RankTrace trace = trace_leader_round(round)[rank];
          const auto circle = static_cast<int>(report->ranks.size());
          const double sent = traced_bytes(trace, [](int) { return true; });
          const double between = traced_bytes(
              trace, [&](int to) { return colours[static_cast<size_t>(to)] != colours[rank]; });
          EXPECT_EQ(sent + leader_words(circle).bytes, static_cast<double>(report->sent_bytes));
          EXPECT_EQ(between, static_cast<double>(report->between_bytes));
        }
      });
      EXPECT_EQ(rounds, ranks * (count > 1 ? 6 : 3));
    }
}

TEST(PredictedLocal, LeadersSendAsMuchOnAverage) {
  const SynchroniserOptions options{.method = "leader:tau=2,tau_global=4,groups=2"};
  CostTable costs = costs_of("fp32");
  const PlanRequest request{.ranks = 6, .link = {}};
  const StepPrediction predicted =
      predict_local_steps(timeline_of(vector_model(), 1), options, request, costs).value();
  EXPECT_FALSE(predicted.bytes_exact);
  const std::vector<double> sent = counted(6, options, 12);
  const auto total = [](const std::vector<double>& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), 0.0);
  };
  EXPECT_NEAR(total(predicted.sent_bytes), total(sent), 1e-6);  // every tree has as many edges
}

double values_of(const std::vector<TensorSpec>& tensors) {
  double values = 0;
  for (const TensorSpec& tensor : tensors) values += static_cast<double>(tensor.count());
  return values;
}

// Every rank is a group, as usual. Workers write and read a frame in a round of all, and have no
// other rounds; they keep references for both kinds.
TEST(PredictedLocal, LeadersOfGroupsOfOneRankSendToAllAlone) {
  const double values = values_of(vector_model());
  CostTable costs =
      costs_of("int8", {.encode_seconds_per_value = 1e-6, .decode_seconds_per_value = 2e-6});
  const StepPrediction predicted =
      predict_local_steps(timeline_of(vector_model(), 1),
                          {.method = "leader:tau=2,tau_global=4", .codec = "int8"},
                          {.ranks = 4, .link = {}}, costs)
          .value();
  EXPECT_NEAR(predicted.encode_seconds, values * 1e-6 / 4, 1e-12);
  EXPECT_NEAR(predicted.decode_seconds, values * 2e-6 / 4, 1e-12);
  EXPECT_EQ(predicted.memory_bytes, 2 * 12 * values);
}

TEST(PredictedLocal, GossipReadsTheFramesOfAllItsPeers) {
  const double values = values_of(vector_model());
  CostTable costs =
      costs_of("fp32", {.encode_seconds_per_value = 1e-6, .decode_seconds_per_value = 2e-6});
  for (const auto& [graph, frames] :
       {std::pair("exponential", 3), std::pair("one-peer", 1), std::pair("random", 1)}) {
    const StepPrediction predicted =
        predict_local_steps(timeline_of(vector_model(), 1),
                            {.method = "gossip:tau=2,graph=" + std::string(graph)},
                            {.ranks = 8, .link = {}}, costs)
            .value();
    EXPECT_NEAR(predicted.encode_seconds, values * 1e-6 / 2, 1e-12) << graph;
    EXPECT_NEAR(predicted.decode_seconds, frames * values * 2e-6 / 2, 1e-12) << graph;
  }
}

TEST(PredictedLocal, BytesInsideAreThoseToRanksOfTheMachine) {
  CostTable costs = costs_of("fp32");
  const auto of = [&](const std::string& method, int per_machine) {
    return predict_local_steps(timeline_of(vector_model(), 1), {.method = method},
                               {.ranks = 4, .link = {}, .per_machine = per_machine}, costs)
        .value();
  };
  const StepPrediction ring = of("gossip:graph=ring", 2);  // ranks 1 and 3 send to another machine
  const double frame = ring.sent_bytes[0];
  EXPECT_EQ(ring.inside_bytes, (std::vector<double>{frame, 0, frame, 0}));
  EXPECT_EQ(ring.busiest_between(), frame);
  const StepPrediction leader = of("leader:groups=2", 1);  // groups are not machines
  EXPECT_EQ(leader.busiest_between(), leader.busiest_bytes());
  EXPECT_LT(of("leader:groups=2", 2).busiest_between(), leader.busiest_bytes());
  EXPECT_EQ(of("average", 1).busiest_between(), of("average", 1).busiest_bytes());
  EXPECT_EQ(of("average", 2).busiest_between(), std::nullopt);
}

// 2 ranks, dense: half of the values each way, means back, two latencies, and one for the
// agreement.
TEST(PredictedLocal, SecondsAreARoundsShareOfEveryStep) {
  const std::vector<TensorSpec> model = {{"w", {200000}, TensorKind::kLinear}};
  CostTable costs = costs_of("fp32", {.encode_seconds_per_value = 1e-6});
  const PlanRequest request{.ranks = 2, .link = {.bits_per_second = 1e7, .latency_seconds = 0.1}};
  const StepPrediction predicted =
      predict_local_steps(timeline_of(model, 1), {.method = "diloco:tau=50", .exchange = "dense"},
                          request, costs)
          .value();
  const double coding = 200000 * 1e-6;  // half for the other, and the mean of half
  const double round = coding + 2 * (8 * (4e5 + 48) * 1.048 / 1e7 + 0.1) + 0.1;
  EXPECT_NEAR(predicted.longest_seconds, 1 + round, 1e-9);
  EXPECT_NEAR(predicted.seconds, 1 + round / 50, 1e-9);
  EXPECT_NEAR(predicted.encode_seconds, coding / 50, 1e-9);
  EXPECT_EQ(predicted.limit, StepLimit::kComputation);
  const StepPrediction often =
      predict_local_steps(timeline_of(model, 1), {.method = "average:tau=1", .exchange = "dense"},
                          request, costs)
          .value();
  EXPECT_NEAR(often.seconds, 1 + round, 1e-9);
  EXPECT_EQ(often.limit, StepLimit::kBandwidth);
}

// A binomial tree of 4: the root tells rank 2, then rank 1; rank 2 tells rank 3.
TEST(PredictedLocal, ATreeTakesTheTimeOfItsLongestBranch) {
  LeaderRound round{
      .colours = {0, 0, 0, 0}, .local = false, .frame_bytes = 1e6, .own_leaders = {0}, .leader = 0};
  PlanRequest request{.ranks = 4, .link = {.bits_per_second = 1e7, .latency_seconds = 0.1}};
  const double one = request.link.seconds_for(1e6);
  EXPECT_NEAR(trace_seconds(trace_leader_round(round), request), 2 * (one + 0.1), 1e-9);
  request.link.latency_seconds = 0;
  EXPECT_NEAR(trace_seconds(trace_leader_round(round), request), 2 * one, 1e-9);
  // Two machines of 2: rank 0 to rank 2 alone leaves a machine.
  request = {.ranks = 4,
             .link = {.bits_per_second = 1e6, .latency_seconds = 0},
             .per_machine = 2,
             .inside = {.bits_per_second = 1e8, .latency_seconds = 0}};
  EXPECT_NEAR(trace_seconds(trace_leader_round(round), request), (8e6 / 1e6 + 8e6 / 1e8) * 1.048,
              1e-9);
}

// All ranks are on one machine, where only the link inside costs anything.
TEST(PredictedLocal, MayBeLimitedByTheLinkInsideMachines) {
  CostTable costs = costs_of("fp32");
  const auto limit = [&](const std::string& method, int per_machine) {
    const PlanRequest request{.ranks = 4,
                              .link = {.bits_per_second = 1e6},
                              .per_machine = per_machine,
                              .inside = {.bits_per_second = 1e6}};
    return predict_local_steps(timeline_of(vector_model(), 1e-6), {.method = method}, request,
                               costs)
        .value()
        .limit;
  };
  for (const std::string method : {"leader:tau=1,tau_global=1,groups=1", "gossip:tau=1"}) {
    EXPECT_EQ(limit(method, 4), StepLimit::kInside) << method;
    EXPECT_EQ(limit(method, 1), StepLimit::kBandwidth) << method;
  }
}

TEST(PredictedLocal, ALoneWorkerSendsNothing) {
  CostTable costs = costs_of("fp32");
  const StepPrediction predicted =
      predict_local_steps(timeline_of(vector_model(), 2), {.method = "average"},
                          {.ranks = 1, .link = {.bits_per_second = 1e3}}, costs)
          .value();
  EXPECT_EQ(predicted.seconds, 2);
  EXPECT_EQ(predicted.busiest_bytes(), 0);
}

TEST(PredictedLocal, RefusesWhatWorkersRefuse) {
  CostTable costs = costs_of("fp32");
  const auto why = [&](const SynchroniserOptions& options, int ranks = 4) {
    return predict_local_steps(timeline_of(vector_model(), 1), options,
                               {.ranks = ranks, .link = {}}, costs)
        .status()
        .message();
  };
  EXPECT_THAT(why({.method = "leeder"}), HasSubstr("did you mean 'leader'?"));
  EXPECT_THAT(why({.method = "leader:groups=5"}), HasSubstr("5 groups among 4 ranks"));
  EXPECT_THAT(why({.method = "leader:tau=4,tau_global=6"}), HasSubstr("multiple of tau"));
  EXPECT_THAT(why({.method = "leader:asynchronous=true"}), HasSubstr("asynchronous"));
  EXPECT_THAT(why({.method = "average", .codec = "topp"}), HasSubstr("topp"));
  EXPECT_THAT(why({.method = "gossip", .codec = "int8"}), HasSubstr("codec 'int8' is lossy"));
  EXPECT_THAT(why({.method = "average", .momentum = "memory"}), HasSubstr("has no momentum"));
  EXPECT_THAT(why({.method = "streaming"}), HasSubstr("overlap the steps that follow"));
  EXPECT_THAT(why({.method = "average"}, 0), HasSubstr("1 to 65534"));
}

}  // namespace
}  // namespace thinwire::testing
