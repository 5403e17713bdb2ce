// Tests of pipelines against the same network in one process: results, bytes, faults.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "train/norm_statistics.h"
#include "train/own_buffers.h"
#include "train/pipeline/pipeline_testing.h"

namespace thinwire {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Settings stages(int count) { return {{"pipeline.stages", std::to_string(count)}}; }

class Stages : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, Stages, ::testing::Values(1, 2, 3, 4));

TEST_P(Stages, GiveTheBitsOfOneProcess) {
  const Settings more = {
      {"optimizer.momentum", "0.9"}, {"optimizer.weight_decay", "0.01"}, {"clip.norm", "0.5"}};
  for (const bool normed : {false, true}) {
    StagedOptions options{.settings = more, .dropout = 0.25, .normed = normed};
    const StagedResult one = run_staged(1, options);
    options.settings = with(more, stages(GetParam()));
    const StagedResult cut = run_staged(GetParam(), options);
    EXPECT_TRUE(same_bits(cut.weights, one.weights)) << "normed " << normed;
    EXPECT_EQ(cut.summary.final_test_loss, one.summary.final_test_loss);
    ASSERT_THAT(cut.steps, SizeIs(one.steps.size()));
    for (size_t i = 0; i < one.steps.size(); ++i) EXPECT_EQ(cut.steps[i].loss, one.steps[i].loss);
  }
}

TEST_P(Stages, WithMicroBatchesMatchOneProcessToRounding) {
  StagedOptions options{.dropout = 0.25};
  const StagedResult one = run_staged(1, options);
  std::vector<StagedResult> orders;
  for (const char* order : {"1f1b", "fill-drain"}) {
    options.settings =
        with(stages(GetParam()), {{"train.micro_batches", "6"}, {"pipeline.order", order}});
    orders.push_back(run_staged(GetParam(), options));
    EXPECT_LT(distance(orders.back().weights, one.weights), 1e-5);
  }
  EXPECT_TRUE(same_bits(orders[0].weights, orders[1].weights));
}

TEST(Pipeline, TwoPipelinesShareABatch) {
  const Settings more = {{"clip.norm", "0.5"}, {"train.micro_batches", "2"}};
  StagedOptions options{.settings = more};
  const StagedResult one = run_staged(1, options);
  options.settings = with(more, stages(2));
  const StagedResult two = run_staged(4, options);
  EXPECT_LT(distance(two.weights, one.weights), 1e-5);
  EXPECT_NEAR(two.steps[3].loss, one.steps[3].loss, 1e-5);
  EXPECT_GT(two.summary.sent_bytes_per_step, 0);
}

TEST(Pipeline, CompressesGradientsBetweenPipelinesToo) {
  StagedOptions options{.settings = with(stages(2), {{"exchange.codec", "topk:density=0.1"},
                                                     {"train.epochs", "20"}})};
  const StagedResult result = run_staged(4, options);
  EXPECT_LT(result.summary.final_test_error, 0.3);
  EXPECT_GT(result.summary.codec_ratio, 1.4);  // with activations, which are not compressed
}

// The last batch of an epoch has one sample: the second pipeline has none.
TEST(Pipeline, MayHaveNoSamplesInAStep) {
  StagedOptions options{.samples = 41};
  const StagedResult one = run_staged(1, options);
  options.settings = with(stages(2), {{"train.micro_batches", "3"}});
  const StagedResult two = run_staged(4, options);
  EXPECT_LT(distance(two.weights, one.weights), 1e-5);
  ASSERT_EQ(two.steps.size(), one.steps.size());
  for (size_t i = 0; i < one.steps.size(); ++i)
    EXPECT_NEAR(two.steps[i].loss, one.steps[i].loss, 1e-5);
}

// A batch of 20 samples in two micro-batches, 16 values each.
TEST(Pipeline, CountsTheBytesOfEachBoundaryAndDirection) {
  StagedOptions options{.settings = with(stages(3), {{"train.micro_batches", "2"},
                                                     {"train.drop_last", "true"},
                                                     {"pipeline.cut", "first, third"},
                                                     {"pipeline.forward", "uniform:bits=4 / fp16"},
                                                     {"pipeline.backward", "uniform:bits=8"}})};
  const StagedResult result = run_staged(3, options);
  constexpr uint64_t kHeads = 2 * (48 + 24), kSize = 2 * 4;
  for (const PipelineReport& step : result.pipelines) {
    ASSERT_THAT(step.boundaries, SizeIs(2));
    EXPECT_EQ(step.boundaries[0].name, "first");
    EXPECT_EQ(step.boundaries[1].name, "third");
    EXPECT_EQ(step.boundaries[0].forward.values, 320u);
    EXPECT_EQ(step.boundaries[0].forward.payload_bytes, kSize + 2 * 8 + 320 / 2);
    EXPECT_EQ(step.boundaries[0].backward.payload_bytes, kSize + 2 * 8 + 320u);
    EXPECT_EQ(step.boundaries[1].forward.message_bytes, kHeads + kSize + 640);
    EXPECT_GE(step.idle_share, 0);
    EXPECT_LT(step.idle_share, 1);
  }
  EXPECT_NEAR(result.summary.codec_ratio, 4 * 4 * 320 / (184.0 + 344 + 648 + 344), 1e-9);
}

TEST(Pipeline, CompressesTheLastBoundariesAlone) {
  const Settings last = {{"train.drop_last", "true"},
                         {"pipeline.boundaries", "1"},
                         {"pipeline.forward", "topk:density=0.25"},
                         {"pipeline.forward_memory", "ef"},
                         {"pipeline.backward", "fp16"}};
  const StagedResult result = run_staged(3, {.settings = with(stages(3), last)});
  Settings listed = with(stages(3), last);
  listed[2].second = "0";
  listed[3].second = "fp32 / topk:density=0.25";
  listed[4].second = "none / ef";
  listed[5].second = "fp32 / fp16";
  const StagedResult same = run_staged(3, {.settings = listed});
  EXPECT_TRUE(same_bits(result.weights, same.weights));
  EXPECT_EQ(result.summary.sent_bytes_per_step, same.summary.sent_bytes_per_step);
  EXPECT_EQ(result.pipelines[0].boundaries[0].forward.payload_bytes, 4 + 4 * 320u);
  EXPECT_LT(result.pipelines[0].boundaries[1].forward.payload_bytes, 2 * 320u);
}

TEST(Pipeline, WarmsUpForSteps) {
  const StagedOptions options{.settings = with(stages(2), {{"pipeline.warmup_steps", "3"},
                                                           {"train.drop_last", "true"},
                                                           {"pipeline.forward", "uniform:bits=4"},
                                                           {"pipeline.forward_memory", "ef"}})};
  const StagedResult result = run_staged(2, options);
  ASSERT_GT(result.pipelines.size(), 4u);
  for (size_t i = 0; i < result.pipelines.size(); ++i) {
    EXPECT_EQ(result.pipelines[i].warming_up, i < 3) << i;
    const uint64_t size = result.pipelines[i].boundaries[0].forward.payload_bytes;
    EXPECT_EQ(size >= 4 * 320, i < 3) << i << ": " << size;
  }
}

struct Compression {
  const char* name;
  Settings settings;
};
void PrintTo(const Compression& c, std::ostream* out) { *out << c.name; }

class Compressed : public ::testing::TestWithParam<Compression> {
 protected:
  static Settings settings() {
    return with(with(stages(4), {{"train.micro_batches", "2"},
                                 {"train.drop_last", "true"},
                                 {"optimizer.momentum", "0.9"}}),
                GetParam().settings);
  }
};
INSTANTIATE_TEST_SUITE_P(
    Ways, Compressed,
    ::testing::Values(
        Compression{
            "bits",
            {{"pipeline.forward", "uniform:bits=4"}, {"pipeline.backward", "uniform:bits=8"}}},
        Compression{"random", {{"pipeline.forward", "qsgd"}, {"pipeline.backward", "fp16"}}},
        Compression{"ef",
                    {{"pipeline.forward", "topk:density=0.25"},
                     {"pipeline.backward", "topk:density=0.5"},
                     {"pipeline.forward_memory", "ef"},
                     {"pipeline.backward_memory", "ef"}}},
        Compression{"efmixed",
                    {{"pipeline.forward", "topk:density=0.25"},
                     {"pipeline.forward_memory", "efmixed:density=0.25"}}},
        Compression{"ef21",
                    {{"pipeline.forward", "topk:density=0.25"},
                     {"pipeline.backward", "uniform:bits=4"},
                     {"pipeline.forward_memory", "ef21"},
                     {"pipeline.backward_memory", "ef21"}}},
        Compression{"scheduled",
                    {{"pipeline.forward", "fp32 | 1: topk:density=linear(0.5;0.25;3)"},
                     {"pipeline.backward", "topk:density=warmup(0.5;2)"},
                     {"pipeline.forward_memory", "ef"}}},
        Compression{"aqsgd",
                    {{"pipeline.forward", "uniform:bits=2"},
                     {"pipeline.backward", "uniform:bits=8"},
                     {"pipeline.forward_memory", "aqsgd"}}},
        Compression{"aqsgd_batches",
                    {{"pipeline.forward", "topk:density=0.25"},
                     {"train.fixed_batches", "true"},
                     {"pipeline.warmup", "1"},
                     {"pipeline.forward_memory", "aqsgd:key=batch"}}},
        Compression{
            "positions",
            {{"pipeline.forward", "topk:density=0.5"}, {"pipeline.shared_positions", "true"}}}),
    [](const auto& way) { return way.param.name; });

TEST_P(Compressed, LearnsAndIsTestedWithAndWithoutCompression) {
  const StagedOptions options{
      .settings = with(settings(), {{"train.epochs", "10"}, {"optimizer.lr", "0.03"}}),
      .samples = 400,
      .held_out = 40};
  const StagedResult result = run_staged(4, options);
  EXPECT_LT(result.steps.back().loss, 0.8 * result.steps.front().loss);
  EXPECT_LT(result.summary.best_test_error, 0.35);
  bool differ = false;
  for (const EvaluationEvent& test : result.tests) {
    ASSERT_TRUE(test.compressed_error && test.compressed_loss && test.compressed_hold_out_error);
    differ |= *test.compressed_loss != test.loss;
  }
  EXPECT_TRUE(differ);
  EXPECT_EQ(result.summary.final_compressed_test_error, result.tests.back().compressed_error);
  EXPECT_GT(result.summary.codec_ratio, 1);
}

// What a batch norm behind a cut sees without compression is not what it saw in training.
TEST(Pipeline, MeasuresBatchNormAgainForTestsWithoutCompression) {
  const auto run = [](const std::string& samples) {
    const Settings settings{{"pipeline.forward", "topk:density=0.25"},
                            {"pipeline.cut", "first, third"},
                            {"train.evaluate_batch", "30"},  // three batches of all samples
                            {"pipeline.norm_samples", samples}};
    return run_staged(3, {.settings = with(stages(3), settings), .normed = true});
  };
  const StagedResult trained = run("0"), measured = run("90");

  const Task task = staged_task(0, /*normed=*/true);
  const std::vector<torch::Tensor> parameters = task.module->parameters();
  {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(trained.weights[i]);
  }
  OwnBuffers buffers(*task.module);
  measure_norms(*make_local_groups(1)[0], task, ToyData(90), 90, 30, buffers);
  const std::vector<torch::Tensor> expected = task.module->buffers();
  for (size_t i = 0; i < measured.weights.size(); ++i) {
    const torch::Tensor& weight = measured.weights[i];
    if (i < parameters.size()) {
      EXPECT_TRUE(same_bits({weight}, {trained.weights[i]})) << i;
    } else if (weight.is_floating_point()) {
      EXPECT_TRUE(weight.allclose(expected[i - parameters.size()], 1e-4, 1e-5)) << i;
    }
  }

  ASSERT_EQ(measured.tests.size(), trained.tests.size());
  for (size_t i = 0; i < measured.tests.size(); ++i) {
    EXPECT_NE(measured.tests[i].loss, trained.tests[i].loss);
    EXPECT_EQ(measured.tests[i].compressed_loss, trained.tests[i].compressed_loss);
  }
}

TEST_P(Compressed, RunsAgainBitForBit) {
  const StagedOptions options{.settings = settings()};
  const StagedResult first = run_staged(4, options), again = run_staged(4, options);
  EXPECT_TRUE(same_bits(first.weights, again.weights));
  EXPECT_EQ(first.summary.sent_bytes_per_step, again.summary.sent_bytes_per_step);
}

// What comes out of `layer`, or the loss, is infinite in the step behind two good ones, on one
// rank.
StagedResult spoiled(StagedOptions options, int at_rank, std::optional<size_t> layer) {
  options.change = [=](int rank, Task& task) {
    if (rank != at_rank) return;
    auto calls = std::make_shared<int>(0);
    const auto spoil = [calls](const torch::Tensor& x) {  // two micro-batches a step
      return (*calls)++ == 5 ? x * std::numeric_limits<float>::infinity() : x;
    };
    if (layer) {
      // Also called twice for the shapes of what crosses.
      *calls = -2;
      task.layers[*layer].forward = [spoil, inner = task.layers[*layer].forward](
                                        const torch::Tensor& x) { return spoil(inner(x)); };
    } else {
      task.loss = [spoil](const torch::Tensor& x, const torch::Tensor& targets) {
        return spoil(torch::nn::functional::cross_entropy(x, targets));
      };
    }
  };
  return run_staged(4, options);
}

// Whatever was not finite, and where: the step is as if it had not been, on all stages.
TEST_P(Compressed, AStepThatIsNotFiniteLeavesNoTrace) {
  const StagedOptions options{.settings = with(settings(), {{"train.epochs", "3"}}),
                              .normed = true};
  const StagedResult plain = run_staged(4, options);
  const StagedResult loss = spoiled(options, 3, std::nullopt);
  const StagedResult first = spoiled(options, 0, 0), second = spoiled(options, 1, 1);
  EXPECT_THAT(loss.notes, ::testing::Contains(HasSubstr("gradients of activations of stage 3")));
  EXPECT_THAT(first.notes, ::testing::Contains(HasSubstr("activations of stage 0' of rank 0")));
  EXPECT_THAT(second.notes, ::testing::Contains(HasSubstr("activations of stage 1' of rank 1")));
  for (const StagedResult* result : {&loss, &first, &second}) {
    EXPECT_EQ(result->summary.skipped_steps, 1u);
    EXPECT_THAT(result->notes, ::testing::Contains(HasSubstr("step 3 skipped")));
    EXPECT_TRUE(same_bits(result->weights, loss.weights));
    EXPECT_FALSE(same_bits(result->weights, plain.weights));
    EXPECT_LE(result->pipelines[2].boundaries[0].forward.payload_bytes,
              2 * plain.pipelines[0].boundaries[0].forward.payload_bytes);
    for (size_t i = 3; i < plain.pipelines.size(); ++i)
      for (const auto& boundary : result->pipelines[i].boundaries)
        EXPECT_EQ(boundary.forward.full, loss.pipelines[i].boundaries[0].forward.full);
  }
}

void expect_refused(int ranks, const Settings& settings, const std::string& why) {
  try {
    run_staged(ranks, {.settings = settings});
    ADD_FAILURE() << "not refused: " << why;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(why));
  }
}

// In step 4 the gradients of the second stage's first weight are so large, in both pipelines, that
// their sum overflows; or, for comparison, the loss of that step is infinite.
StagedResult overflowing(StagedOptions options, bool in_exchange) {
  options.change = [=](int rank, Task& task) {
    const auto calls = std::make_shared<int>(0);
    if (in_exchange && rank % 2 == 1)
      task.layers[2].module->parameters()[0].register_hook([calls](const torch::Tensor& g) {
        return (*calls)++ == 3 ? torch::full_like(g, 3e38) : g;
      });
    if (in_exchange) return;
    task.loss = [calls](const torch::Tensor& x, const torch::Tensor& targets) {
      const torch::Tensor loss = torch::nn::functional::cross_entropy(x, targets);
      const bool spoil = x.requires_grad() && (*calls)++ == 3;
      return spoil ? loss * std::numeric_limits<float>::infinity() : loss;
    };
  };
  return run_staged(4, options);
}

// The exchange of one stage sees a fault, that of the other stage does not. What memories owe stays
// as it was on all ranks.
TEST(Pipeline, AStepThatOneStageCannotExchangeLeavesNoTrace) {
  const StagedOptions options{
      .settings = with(stages(2), {{"exchange.codec", "int4"}, {"exchange.feedback", "residual"}})};
  const StagedResult bad = overflowing(options, true), other = overflowing(options, false);
  EXPECT_EQ(bad.summary.skipped_steps, 1u);
  EXPECT_EQ(other.summary.skipped_steps, 1u);
  EXPECT_THAT(bad.notes, ::testing::Contains(HasSubstr("exchange of stage 1")));
  EXPECT_TRUE(same_bits(bad.weights, other.weights));
  EXPECT_FALSE(same_bits(bad.weights, run_staged(4, options).weights));
}

TEST(Pipeline, RefusesWhatDoesNotFit) {
  expect_refused(3, stages(2), "2 stages need as many workers, or a multiple of that, not 3");
  expect_refused(5, stages(5), "pipeline.cut: ");
  expect_refused(2, with(stages(2), {{"pipeline.cut", "fourth"}}), "first, second, third, output");
  expect_refused(2, with(stages(2), {{"pipeline.cut", "first, second"}}), "names 2 layers");
  expect_refused(2,
                 with(stages(2), {{"train.micro_batches", "3"},
                                  {"train.drop_last", "true"},
                                  {"pipeline.forward_memory", "ef"}}),
                 "a batch of 20 must be a multiple of 3");
  expect_refused(2, with(stages(2), {{"pipeline.forward_memory", "ef"}}),
                 "an epoch of batches (train.drop_last)");
  const auto tie = [](int, Task& task) {  // two stages, each with a layer of the two
    task.layers[2] = task.layers[1];
    task.layers[2].name = "third";
  };
  try {
    run_staged(2, {.settings = with(stages(2), {{"pipeline.cut", "second"}}), .change = tie});
    ADD_FAILURE() << "a weight of two stages";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(),
                HasSubstr("'second' and 'third' share a weight, and are in stages 0 and 1"));
  }
  run_staged(2, {.settings = with(stages(2), {{"pipeline.cut", "first"}}), .change = tie});
  try {
    run_toy(2, {.settings = stages(2)});
    ADD_FAILURE() << "a network without layers";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("not a sequence of layers"));
  }
}

TEST(Pipeline, FindsFaultsInARecipe) {
  const auto fault = [](const Settings& settings) {
    const auto found = find_faults(toy_recipe(settings).options);
    return found.empty() ? "" : found.front().key + ": " + found.front().status.message();
  };
  EXPECT_EQ(fault(stages(4)), "");
  EXPECT_THAT(fault(with(stages(2), {{"pipeline.forward", "fp17"}})),
              HasSubstr("pipeline.forward: "));
  EXPECT_THAT(fault(with(stages(2), {{"pipeline.backward_memory", "efx"}})),
              HasSubstr("pipeline.backward_memory: "));
  EXPECT_THAT(fault(with(stages(2), {{"pipeline.backward_memory", "aqsgd"}})),
              HasSubstr("pipeline.backward_memory: aqsgd remembers activations"));
  EXPECT_THAT(fault(with(stages(4), {{"pipeline.forward", "fp32 / fp16"}})),
              HasSubstr("has 2 parts where 4 stages have 3 boundaries"));
  EXPECT_THAT(fault(with(stages(4), {{"pipeline.boundaries", "4"}})),
              HasSubstr("pipeline.boundaries: 4 boundaries, where 4 stages have 3"));
  EXPECT_THAT(
      fault(with(stages(3), {{"pipeline.boundaries", "1"}, {"pipeline.forward", "fp32 / fp16"}})),
      HasSubstr("pipeline.boundaries: pipeline.forward has a part for each boundary"));
  EXPECT_THAT(fault(with(stages(2), {{"pipeline.forward_memory", "ef21"}})),
              HasSubstr("train.drop_last"));
  EXPECT_THAT(fault(with(stages(2), {{"pipeline.forward_memory", "aqsgd:key=batch"}})),
              HasSubstr("train.fixed_batches"));
  const Settings dropping =
      with(stages(2), {{"pipeline.forward_memory", "aqsgd"}, {"model.dropout", "0.1"}});
  EXPECT_THAT(fault(dropping), HasSubstr("pipeline.augmented_ids"));
  EXPECT_EQ(fault(with(dropping, {{"pipeline.augmented_ids", "true"}})), "");
  EXPECT_THAT(fault(with(stages(2), {{"pipeline.shared_positions", "true"}})),
              HasSubstr("keeps no positions"));
  EXPECT_THAT(fault(with(stages(2), {{"sync.method", "average"}})), HasSubstr("pipeline.stages: "));
  EXPECT_THAT(fault(with(stages(2), {{"pipeline.warmup", "1"}, {"pipeline.warmup_steps", "9"}})),
              HasSubstr("pipeline.warmup_steps: pipeline.warmup is given too"));
}

TEST(Pipeline, AStageThatThrowsEndsTheOthersAndIsNamed) {
  for (const int bad : {0, 1, 3}) {
    std::vector<std::string> told(4);
    EXPECT_THROW(run_local(4,
                           [&](Group& group) {
                             StagedOptions options{.settings = stages(4)};
                             options.change = [&](int rank, Task& task) {
                               if (rank != bad) return;
                               auto calls = std::make_shared<int>(0);
                               Layer& layer = task.layers[static_cast<size_t>(bad)];
                               layer.forward = [calls,
                                                inner = layer.forward](const torch::Tensor& x) {
                                 if (++*calls == 6) throw std::runtime_error("out of memory");
                                 return inner(x);
                               };
                             };
                             try {
                               train_staged(group, options);
                             } catch (const std::exception& error) {
                               told[static_cast<size_t>(group.rank())] = error.what();
                               throw;
                             }
                           }),
                 std::exception);
    EXPECT_THAT(told, Each(HasSubstr("out of memory"))) << bad;
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == bad) continue;
      EXPECT_THAT(told[static_cast<size_t>(rank)], HasSubstr("rank " + std::to_string(bad)));
    }
  }
}

}  // namespace
}  // namespace thinwire
