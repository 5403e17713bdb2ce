// Tests of predicted pipelines against plain loops over the schedule, and against messages that
// boundaries make.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "pipeline/stage_schedule.h"
#include "plan/boundary_cost.h"
#include "thinwire/pipeline_plan.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kMemories = {"none", "residual", "efmixed:density=0.1", "ef21"};

CostTable costs_of(const std::vector<std::string>& codecs, const CodecCost& cost = {}) {
  CostTable costs;
  for (const std::string& codec : codecs) {
    costs.set({.codec = codec}, cost);
    for (const std::string& memory : kMemories)
      if (check_exchange({.codec = codec, .feedback = memory}))
        costs.set({.codec = codec, .feedback = memory}, cost);
  }
  return costs;
}

BoundarySpec boundary(const std::string& codec, const std::string& memory = "none") {
  return {.name = "cut",
          .sample_shape = {40, 25},
          .samples = 10,
          .micro_batches = 4,
          .codec = codec,
          .memory = memory};
}

PlannedPipeline pipeline_of(size_t stages, size_t micro_batches, const std::string& codec,
                            const std::string& order) {
  PlannedPipeline pipeline{
      .stages = {}, .cuts = {}, .micro_batches = micro_batches, .order = order};
  for (size_t stage = 0; stage < stages; ++stage)
    pipeline.stages.push_back(
        {.forward_seconds = 1 + 0.25 * static_cast<double>(stage),
         .backward_seconds = 2,
         .tensors = {
             {"w" + std::to_string(stage), {1000 * (stage + 1), 20}, TensorKind::kLinear}}});
  for (size_t cut = 0; cut + 1 < stages; ++cut)
    pipeline.cuts.push_back({.forward = boundary(codec), .backward = boundary(codec)});
  return pipeline;
}

StepPrediction step_of(const PlannedPipeline& pipeline, const PlanRequest& request,
                       CostTable& costs) {
  return predict_pipeline(pipeline, request, costs).value().step;
}

// When every operation ends, again and again until nothing changes: each waits for the one before
// it on its stage and for its input, which takes `crossing` seconds to come. Links are never busy.
double oracle_seconds(const PlannedPipeline& pipeline, double crossing) {
  const size_t stages = pipeline.stages.size(), m = pipeline.micro_batches;
  const auto order =
      pipeline.order == "1f1b" ? PipelineOrder::kOneFOneB : PipelineOrder::kFillDrain;
  std::vector<std::vector<double>> forward(stages, std::vector<double>(m)), backward = forward;
  double last = -1, end = 0;
  while (end != last) {
    last = end;
    for (size_t s = 0; s < stages; ++s) {
      double free = 0;
      for (const PipelineOp& op : stage_operations(order, stages, s, m)) {
        const size_t i = op.micro_batch;
        double input = 0;
        if (!op.backward && s > 0) input = forward[s - 1][i] + crossing;
        if (op.backward && s + 1 < stages) input = backward[s + 1][i] + crossing;
        const PlannedStage& stage = pipeline.stages[s];
        free =
            std::max(free, input) + (op.backward ? stage.backward_seconds : stage.forward_seconds);
        (op.backward ? backward : forward)[s][i] = free;
        end = std::max(end, free);
      }
    }
  }
  return end;
}

TEST(PredictedPipeline, TakesTheTimeOfItsScheduleWithLatencies) {
  CostTable costs = costs_of({"fp32"});
  for (const char* order : {"1f1b", "fill-drain"})
    for (const size_t stages : {1, 2, 4})
      for (const size_t micro_batches : {1, 3, 8})
        for (const double latency : {0.0, 0.5}) {
          const PlannedPipeline pipeline = pipeline_of(stages, micro_batches, "fp32", order);
          const PlanRequest request{.ranks = static_cast<int>(stages),
                                    .link = {.latency_seconds = latency}};
          const double words = stages > 1 ? 2 * latency : 0;
          EXPECT_NEAR(step_of(pipeline, request, costs).seconds,
                      oracle_seconds(pipeline, latency) + words, 1e-9)
              << order << " " << stages << " " << micro_batches;
        }
}

// Decoupled, no stage waits within its passes: the last message of each ends the step.
TEST(PredictedPipeline, OfDecoupledStagesTakesTheTimeOfTheSlowest) {
  CostTable costs = costs_of({"fp32"});
  for (const size_t stages : {1, 2, 4})
    for (const size_t micro_batches : {1, 3, 8})
      for (const double latency : {0.0, 0.5}) {
        const PlannedPipeline pipeline = pipeline_of(stages, micro_batches, "fp32", "decoupled");
        double end = 0;
        for (size_t s = 0; s < stages; ++s) {
          const PlannedStage& stage = pipeline.stages[s];
          const double work =
              static_cast<double>(micro_batches) * (stage.forward_seconds + stage.backward_seconds);
          if (s > 0)
            end = std::max(end, work + latency);  // its last gradient
          else if (stages > 1)
            end = std::max(end, work - stage.backward_seconds + latency);  // its last activation
          end = std::max(end, work);
        }
        const PlanRequest request{.ranks = static_cast<int>(stages),
                                  .link = {.latency_seconds = latency}};
        const double words = stages > 1 ? 2 * latency : 0;
        EXPECT_NEAR(step_of(pipeline, request, costs).seconds, end + words, 1e-9)
            << stages << " " << micro_batches << " " << latency;
      }
}

// Two stages, one micro-batch each way: what a stage sends it decodes, too.
TEST(PredictedPipeline, OfDecoupledStagesIdlesWhileTheLastMessagesCome) {
  CostTable costs =
      costs_of({"fp32"}, {.encode_seconds_per_value = 1e-5, .decode_seconds_per_value = 2e-5});
  PlannedPipeline pipeline = pipeline_of(2, 1, "fp32", "decoupled");
  for (PlannedStage& stage : pipeline.stages) stage.forward_seconds = 1;
  for (PlannedCut& cut : pipeline.cuts) {
    cut.forward.micro_batches = cut.backward.micro_batches = 1;
    cut.auxiliary_bytes = 1e6;
  }
  PlanRequest request{.ranks = 2, .link = {}};
  const PipelinePrediction alone = predict_pipeline(pipeline, request, costs).value();
  EXPECT_NEAR(alone.step.seconds, 3 + 0.1 + 0.2 + 0.2, 1e-9);
  EXPECT_NEAR(alone.idle_share, 0.5 / 3.5, 1e-9);
  EXPECT_GE(alone.step.memory_bytes, 1e6);
  request.own_core = false;  // both messages are coded by the cores that compute
  EXPECT_NEAR(predict_pipeline(pipeline, request, costs).value().step.seconds, 3 + 0.3 + 0.2, 1e-9);
  pipeline.cuts[0].backward.at_positions = make_kept_positions();
  EXPECT_THAT(predict_pipeline(pipeline, request, costs).status().message(),
              HasSubstr("which positions of the activations were kept"));
}

// Equal stages, free wires: (S - 1) / (M + S - 1).
TEST(PredictedPipeline, IdlesAsTheFormulaSays) {
  CostTable costs = costs_of({"fp32"});
  PlannedPipeline pipeline = pipeline_of(4, 6, "fp32", "1f1b");
  for (PlannedStage& stage : pipeline.stages) stage.forward_seconds = 1;
  const PipelinePrediction predicted =
      predict_pipeline(pipeline, {.ranks = 4, .link = {}}, costs).value();
  EXPECT_NEAR(predicted.idle_share, 3.0 / 9, 1e-9);
  EXPECT_EQ(predicted.step.limit, StepLimit::kComputation);
}

// One micro-batch, two stages: forward, across, forward, backward, across, backward.
TEST(PredictedPipeline, AddsCodingAndWiresOfBothWays) {
  CostTable costs =
      costs_of({"fp32"}, {.encode_seconds_per_value = 1e-5, .decode_seconds_per_value = 2e-5});
  PlannedPipeline pipeline = pipeline_of(2, 1, "fp32", "1f1b");
  for (PlannedCut& cut : pipeline.cuts) cut.forward.micro_batches = cut.backward.micro_batches = 1;
  PlanRequest request{.ranks = 2, .link = {.bits_per_second = 1e6}};
  const double message = 48 + 24 + 4 + 40000 + 8;
  const double across = 0.1 + 0.2 + 8 * message * 1.048 / 1e6;
  const double compute = 1 + 1.25 + 2 + 2;
  EXPECT_NEAR(step_of(pipeline, request, costs).seconds, compute + 2 * across, 1e-9);
  EXPECT_EQ(step_of(pipeline, request, costs).limit, StepLimit::kBandwidth);
  request.own_core = false;  // one after the other anyway
  EXPECT_NEAR(step_of(pipeline, request, costs).seconds, compute + 2 * across, 1e-9);
  request.link.bits_per_second = 1e7;
  EXPECT_EQ(step_of(pipeline, request, costs).limit, StepLimit::kCoding);
  request.link.latency_seconds = 0.5;
  EXPECT_EQ(step_of(pipeline, request, costs).limit, StepLimit::kLatency);
}

// The wire between two stages is slower than both: it carries one message after another.
TEST(PredictedPipeline, IsBoundByTheWireThatIsBusy) {
  CostTable costs = costs_of({"fp32"});
  PlannedPipeline pipeline = pipeline_of(2, 8, "fp32", "fill-drain");
  const PlanRequest request{.ranks = 2, .link = {.bits_per_second = 8.0 * 1e4}};
  const double wire = (48 + 24 + 4 + 40000 + 8) * 1.048 / 1e4;
  EXPECT_NEAR(step_of(pipeline, request, costs).seconds, 1 + 8 * wire + 1.25 + 2 + 8 * wire + 2,
              1e-9);
}

TEST(PredictedPipeline, SizesAreThoseOfTheMessagesThatBoundariesMake) {
  for (const std::string codec : {"fp32", "fp16", "uniform:bits=4,block=tensor", "int8"})
    for (const std::string memory : {"none", "ef", "ef21"})
      for (const bool per_sample : {false, true}) {
        BoundarySpec spec = boundary(codec, memory);
        spec.per_sample = per_sample;
        CostTable costs = costs_of({codec});
        const auto sender = make_boundary_sender(spec).value();
        const std::vector<float> values(10000, 0.5f);
        std::vector<std::byte> out(sender->max_message_size());
        const size_t size = sender->encode(values, {.step = 0, .micro_batch = 0}, out).size;
        const BoundaryCost cost = boundary_cost(spec, 0, costs).value();
        EXPECT_EQ(cost.message_bytes, static_cast<double>(size)) << codec << " " << memory;
        EXPECT_TRUE(cost.exact);
      }
}

// The table of docs/pipeline.md: bytes for each value of a step.
TEST(PredictedPipeline, MemoryIsThatOfBothEnds) {
  const struct {
    std::string memory;
    double sender, receiver;
  } cases[] = {{"none", 0, 0}, {"ef", 8, 0}, {"ef21", 8, 8}, {"aqsgd", 4, 4}};
  for (const auto& [memory, sender, receiver] : cases) {
    CostTable costs;
    const BoundaryCost cost = boundary_cost(boundary("topk:density=0.1", memory), 0, costs).value();
    constexpr double kValues = 10 * 40 * 25 * 4;
    EXPECT_EQ(cost.sender_memory_bytes / kValues, sender) << memory;
    EXPECT_EQ(cost.receiver_memory_bytes / kValues, receiver) << memory;

    PlannedPipeline pipeline = pipeline_of(2, 4, "fp32", "1f1b");
    pipeline.cuts[0].forward = boundary("topk:density=0.1", memory);
    const StepPrediction step = step_of(pipeline, {.ranks = 2, .link = {}}, costs);
    EXPECT_EQ(step.memory_bytes / kValues, std::max(sender, receiver)) << memory;
  }
}

TEST(PredictedPipeline, OfSeveralPipelinesExchangeStageByStage) {
  CostTable costs = costs_of({"fp32"});
  PlannedPipeline pipeline = pipeline_of(2, 4, "fp32", "1f1b");
  pipeline.exchange.method = "dense";
  const PlanRequest request{.ranks = 6, .link = {.bits_per_second = 1e7, .latency_seconds = 0.01}};
  const PipelinePrediction predicted = predict_pipeline(pipeline, request, costs).value();
  const auto exchanged = [&](size_t stage) {
    const std::vector<TensorSpec>& tensors = pipeline.stages[stage].tensors;
    return predict_step({.tensors = tensors, .ready_seconds = {0}}, pipeline.exchange,
                        {.ranks = 3, .link = request.link}, costs)
        .value();
  };
  const PipelinePrediction alone =
      predict_pipeline(pipeline, {.ranks = 2, .link = request.link}, costs).value();
  EXPECT_NEAR(predicted.exchange_seconds, exchanged(1).seconds, 1e-9);
  EXPECT_NEAR(predicted.step.seconds, alone.step.seconds + exchanged(1).seconds + 0.01, 1e-9);
  for (size_t rank = 0; rank < 6; ++rank)
    EXPECT_NEAR(predicted.step.sent_bytes[rank],
                alone.step.sent_bytes[rank % 2] + exchanged(rank % 2).sent_bytes[rank / 2], 1e-6);
  EXPECT_EQ(alone.step.sent_bytes[0], 4 * (48 + 24 + 4 + 40000 + 8.0));
  EXPECT_EQ(alone.cuts[0].forward_bytes, 4 * (48 + 24 + 4 + 40000.0));
  EXPECT_TRUE(predicted.step.bytes_exact);
}

// Two stages on each machine: cut 1 alone is between machines.
TEST(PredictedPipeline, MayHaveStagesOnOneMachine) {
  CostTable costs = costs_of({"fp32"});
  const PlannedPipeline pipeline = pipeline_of(4, 1, "fp32", "1f1b");
  const PlanRequest request{.ranks = 4,
                            .link = {.bits_per_second = 1e6},
                            .per_machine = 2,
                            .inside = {.bits_per_second = 1e7}};
  const double bytes = 8 * (48 + 24 + 4 + 40000 + 8) * 1.048;
  EXPECT_NEAR(step_of(pipeline, request, costs).seconds,
              oracle_seconds(pipeline, 0) + 2 * bytes / 1e6 + 4 * bytes / 1e7, 1e-9);
  EXPECT_EQ(step_of(pipeline, request, costs).busiest_between(), std::nullopt);
  const StepPrediction apart = step_of(pipeline, {.ranks = 4, .link = {}}, costs);
  EXPECT_EQ(apart.busiest_between(), apart.busiest_bytes());
}

TEST(PredictedPipeline, RefusesWhatIsNoPipeline) {
  CostTable costs = costs_of({"fp32"});
  const auto why = [&](const PlannedPipeline& pipeline, const PlanRequest& request) {
    return predict_pipeline(pipeline, request, costs).status().message();
  };
  PlannedPipeline pipeline = pipeline_of(3, 2, "fp32", "1f1b");
  EXPECT_THAT(why(pipeline, {.ranks = 4, .link = {}}), HasSubstr("3 stages need as many ranks"));
  EXPECT_THAT(why(pipeline, {.ranks = 6, .link = {}, .per_machine = 2}), HasSubstr("unevenly"));
  EXPECT_THAT(why({}, {.ranks = 1, .link = {}}), HasSubstr("a pipeline has stages"));
  pipeline.cuts[1].forward.memory = "eff";
  EXPECT_THAT(why(pipeline, {.ranks = 3, .link = {}}), HasSubstr("'eff'"));
  pipeline = pipeline_of(3, 2, "fp32", "gpipe");
  EXPECT_THAT(why(pipeline, {.ranks = 3, .link = {}}),
              HasSubstr("known: 1f1b, fill-drain, decoupled"));
}

}  // namespace
}  // namespace thinwire::testing
