// Tests of planned pipelines against runs: cuts, bytes of boundaries and of exchanges between
// pipelines.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/planned_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "train/pipeline/pipeline_testing.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

PlannedPipeline planned(const Settings& settings, int ranks, int steps = 0) {
  const ToyData train(90), test(53, 1);
  return measured_pipeline(toy_recipe(settings).options, staged_task(),
                           {.train = train, .test = test}, ranks, steps);
}

CostTable free_costs(const std::vector<std::string>& codecs) {
  CostTable costs;
  for (const std::string& codec : codecs)
    for (const char* memory : {"none", "residual", "ef21"})
      if (check_exchange({.codec = codec, .feedback = memory}))
        costs.set({.codec = codec, .feedback = memory}, {});
  return costs;
}

// Of each rank in a step, on average over ranks.
double predicted_bytes(const Settings& settings, int ranks, CostTable& costs) {
  const StepPrediction step =
      predict_pipeline(planned(settings, ranks), {.ranks = ranks, .link = {}}, costs).value().step;
  EXPECT_TRUE(step.bytes_exact);
  return std::accumulate(step.sent_bytes.begin(), step.sent_bytes.end(), 0.0) / ranks;
}

// The last micro-batches have fewer samples then, which are counted as if they were whole.
TEST(PlannedStages, OfUnevenMicroBatchesHaveBytesThatAreEstimates) {
  CostTable costs = free_costs({"fp32"});
  const auto exact = [&](const char* batch) {
    return predict_pipeline(
               planned(
                   {{"pipeline.stages", "3"}, {"train.micro_batches", "4"}, {"train.batch", batch}},
                   3),
               {.ranks = 3, .link = {}}, costs)
        .value()
        .step.bytes_exact;
  };
  EXPECT_TRUE(exact("8"));
  EXPECT_FALSE(exact("10"));
}

TEST(PlannedStages, SendTheBytesOfARun) {
  const Settings cut = {{"pipeline.stages", "3"},
                        {"train.micro_batches", "2"},
                        {"train.drop_last", "true"},
                        {"pipeline.cut", "first, third"},
                        {"pipeline.forward", "uniform:bits=4 / fp16"},
                        {"pipeline.forward_memory", "ef / ef21"},
                        {"pipeline.backward", "uniform:bits=8"}};
  const StagedResult run = run_staged(3, {.settings = cut});
  CostTable costs = free_costs({"uniform:bits=4", "uniform:bits=8", "fp16", "fp32"});
  const double predicted = predicted_bytes(cut, 3, costs);
  EXPECT_EQ(run.summary.sent_bytes_per_step,
            std::floor(predicted));  // a run divides by whole bytes
  const PipelinePrediction cuts =
      predict_pipeline(planned(cut, 3), {.ranks = 3, .link = {}}, costs).value();
  for (size_t i = 0; i < 2; ++i) {
    const auto& boundary = run.pipelines.front().boundaries[i];
    EXPECT_EQ(cuts.cuts[i].forward_bytes, static_cast<double>(boundary.forward.message_bytes));
    EXPECT_EQ(cuts.cuts[i].backward_bytes, static_cast<double>(boundary.backward.message_bytes));
  }
}

// A sample has sixteen values at the cut, of which the codec keeps four.
TEST(PlannedStages, WithSharedPositionsSendTheBytesOfARun) {
  for (const char* streams : {"auto", "sample"}) {
    const Settings cut = {{"pipeline.stages", "2"},      {"train.micro_batches", "2"},
                          {"train.drop_last", "true"},   {"pipeline.forward", "topk:density=0.25"},
                          {"pipeline.backward", "fp32"}, {"pipeline.shared_positions", "true"},
                          {"pipeline.streams", streams}};
    const StagedResult run = run_staged(2, {.settings = cut});
    CostTable costs = free_costs({"fp32"});
    costs.set({.codec = "topk:density=0.25", .feedback = "none"}, {.bytes_per_value = 0.25 * 4.6});
    const PipelinePrediction predicted =
        predict_pipeline(planned(cut, 2), {.ranks = 2, .link = {}}, costs).value();
    const auto sent =
        static_cast<double>(run.pipelines.front().boundaries[0].backward.message_bytes);
    EXPECT_NEAR(predicted.cuts[0].backward_bytes, sent, 0.01 * sent) << streams;
  }
}

TEST(PlannedStages, WithAutoencodersSendTheBytesOfARun) {
  const Settings cut = {{"pipeline.stages", "3"},
                        {"train.micro_batches", "2"},
                        {"train.drop_last", "true"},
                        {"pipeline.cut", "first, third"},
                        {"pipeline.autoencoder", "4x / 3"},
                        {"pipeline.forward", "fp16"},
                        {"pipeline.backward", "uniform:bits=8"}};
  const StagedResult run = run_staged(3, {.settings = cut});
  CostTable costs = free_costs({"uniform:bits=8", "fp16", "fp32"});
  EXPECT_EQ(run.summary.sent_bytes_per_step, std::floor(predicted_bytes(cut, 3, costs)));
  EXPECT_EQ(planned(cut, 3).stages[1].tensors.front().name, "second.weight");
}

// A sample has sixteen values at the cut, and each side keeps those of all 90.
TEST(PlannedStages, ThatAreDecoupledSendTheBytesOfARun) {
  const Settings cut = {{"pipeline.stages", "2"},        {"pipeline.schedule", "decoupled"},
                        {"train.micro_batches", "2"},    {"train.drop_last", "true"},
                        {"train.fixed_batches", "true"}, {"pipeline.forward", "uniform:bits=4"}};
  const StagedResult run = run_staged(2, {.settings = cut});
  EXPECT_TRUE(run.pipelines.back().penalty);
  CostTable costs = free_costs({"uniform:bits=4", "fp32"});
  EXPECT_EQ(run.summary.sent_bytes_per_step, std::floor(predicted_bytes(cut, 2, costs)));
  EXPECT_EQ(planned(cut, 2).order, "decoupled");
  EXPECT_EQ(planned(cut, 2).cuts[0].auxiliary_bytes, 90 * 16 * 4.0);
  EXPECT_EQ(planned(cut, 4).cuts[0].auxiliary_bytes, 90 * 16 * 4.0 / 2);
  EXPECT_EQ(planned({{"pipeline.stages", "2"}}, 2).cuts[0].auxiliary_bytes, 0);
}

TEST(PlannedStages, OfSeveralPipelinesSendTheBytesOfARun) {
  const Settings two = {{"pipeline.stages", "2"},
                        {"train.micro_batches", "2"},
                        {"train.drop_last", "true"},
                        {"exchange.codec", "int8"}};
  const StagedResult run = run_staged(4, {.settings = two});
  CostTable costs = free_costs({"fp32"});
  costs.set({.codec = "int8"}, {});
  const double predicted = predicted_bytes(two, 4, costs);
  EXPECT_EQ(run.summary.sent_bytes_per_step, std::floor(predicted));
}

TEST(PlannedStages, HaveAllWeightsAndTheTimesOfTheirPasses) {
  const PlannedPipeline measured = planned({{"pipeline.stages", "2"}}, 4, 2);
  ASSERT_EQ(measured.stages.size(), 2u);
  ASSERT_EQ(measured.cuts.size(), 1u);
  EXPECT_EQ(measured.cuts[0].forward.samples, 10u);  // of the recipe's 20, two pipelines
  EXPECT_EQ(measured.stages[0].tensors.front().name, "first.weight");
  EXPECT_EQ(measured.stages[1].tensors.back().name, "output.bias");
  size_t values = 0;
  for (const PlannedStage& stage : measured.stages) {
    EXPECT_GT(stage.forward_seconds, 0);
    EXPECT_GT(stage.backward_seconds, 0);
    for (const TensorSpec& tensor : stage.tensors) values += tensor.count();
  }
  EXPECT_EQ(values, 8u * 16 + 16 + 2 * (16 * 16 + 16) + 16 * 3 + 3);
}

// Five samples on two pipelines: one of these has three.
TEST(PlannedStages, HaveAsManyMicroBatchesAsTheFullestPipeline) {
  const PlannedPipeline pipeline =
      planned({{"pipeline.stages", "2"}, {"train.micro_batches", "4"}, {"train.batch", "5"}}, 4);
  EXPECT_EQ(pipeline.micro_batches, 3u);
  EXPECT_EQ(pipeline.cuts[0].forward.samples, 1u);
}

TEST(PlannedStages, RefuseWhatTheTrainerRefuses) {
  const auto why = [](const Settings& settings, int ranks) {
    return [settings, ranks] { planned(settings, ranks); };
  };
  EXPECT_THAT(why({{"pipeline.stages", "2"}}, 3),
              ::testing::ThrowsMessage<Error>(HasSubstr("2 stages need as many workers")));
  EXPECT_THAT(why({{"pipeline.stages", "2"}, {"pipeline.cut", "frist"}}, 2),
              ::testing::ThrowsMessage<Error>(HasSubstr("'frist'")));
  const auto tied = [] {
    Task task = staged_task();
    task.layers[2] = task.layers[1];
    task.layers[2].name = "third";
    const ToyData train(90), test(53, 1);
    measured_pipeline(toy_recipe({{"pipeline.stages", "2"}, {"pipeline.cut", "second"}}).options,
                      task, {.train = train, .test = test}, 2, 0);
  };
  EXPECT_THAT(tied,
              ::testing::ThrowsMessage<Error>(HasSubstr("'second' and 'third' share a weight")));
}

}  // namespace
}  // namespace thinwire
