// Tests of pipelines that are stopped and resumed, caches included, and of altered messages.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "exchange/testing/tampering_group.h"
#include "thinwire/codec.h"
#include "thinwire/frame.h"
#include "train/pipeline/pipeline_testing.h"
#include "train/start_weights.h"
#include "train/temporary_folder.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

Settings base(const Settings& more) {
  return with({{"pipeline.stages", "4"},
               {"train.micro_batches", "2"},
               {"train.drop_last", "true"},
               {"train.epochs", "5"},
               {"optimizer.momentum", "0.9"}},
              more);
}

class Resumed : public ::testing::TestWithParam<Settings> {};
INSTANTIATE_TEST_SUITE_P(
    Memories, Resumed,
    ::testing::Values(
        Settings{}, Settings{{"optimizer.name", "adam"}, {"optimizer.lr", "0.01"}},
        Settings{{"pipeline.cut", "time"}},
        Settings{{"pipeline.cut", "first, second, third"},
                 {"pipeline.autoencoder", "4x / none / 5"},
                 {"pipeline.forward", "topk:density=0.5 / fp16 / fp16"},
                 {"pipeline.forward_memory", "ef"}},
        Settings{{"pipeline.forward", "topk:density=0.25"},
                 {"pipeline.backward", "topk:density=0.5"},
                 {"pipeline.forward_memory", "ef"},
                 {"pipeline.backward_memory", "ef21"}},
        Settings{{"pipeline.forward", "uniform:bits=2"}, {"pipeline.norm_samples", "40"}},
        Settings{{"pipeline.forward", "fp16 | 7steps: topk:density=table(0.5;0.25@3)"},
                 {"pipeline.forward_memory", "ef"}},
        Settings{{"pipeline.forward", "uniform:bits=2"},
                 {"pipeline.forward_memory", "aqsgd:cache=fp16"}},
        Settings{{"pipeline.forward", "uniform:bits=2"},
                 {"pipeline.cache_budget_mb", "0.002"},  // a third of a cache
                 {"pipeline.forward_memory", "aqsgd"}},
        Settings{{"pipeline.forward", "uniform:bits=2"},
                 {"train.fixed_batches", "true"},
                 {"pipeline.warmup", "1"},
                 {"pipeline.forward_memory", "aqsgd:key=batch"}}));

TEST_P(Resumed, GivesTheBitsOfARunThatNeverStopped) {
  const bool by_the_clock = GetParam() == Settings{{"pipeline.cut", "time"}};
  for (const uint64_t after : {3, 10}) {
    const TemporaryFolder folder;
    StagedOptions options{.settings = base(GetParam()), .normed = true};
    const StagedResult whole = run_staged(4, options);
    options.places.out = folder.path() / "run";
    options.stop_after = after;
    EXPECT_FALSE(run_staged(4, options).summary.finished);
    options.stop_after = UINT64_MAX;
    options.places.resume = options.places.out;
    const StagedResult resumed = run_staged(4, options);
    EXPECT_TRUE(resumed.summary.finished);
    for (const std::string& note : resumed.notes) EXPECT_THAT(note, HasSubstr("resumed at"));
    if (by_the_clock) continue;  // the two runs may be cut at different places
    EXPECT_TRUE(same_bits(resumed.weights, whole.weights)) << after;
    EXPECT_EQ(resumed.summary.sent_bytes_per_step, whole.summary.sent_bytes_per_step);
    EXPECT_EQ(resumed.summary.final_compressed_test_error,
              whole.summary.final_compressed_test_error);
  }
}

// The codecs of a test draw by the last step's number.
TEST(PipelineCheckpoint, OfTheEndGivesTheSameCompressedTest) {
  const TemporaryFolder folder;
  StagedOptions options{
      .settings = base({{"pipeline.stages", "2"}, {"pipeline.forward", "qsgd:levels=2"}})};
  options.places.out = folder.path() / "run";
  const RunSummary whole = run_staged(2, options).summary;
  options.places.resume = options.places.out;
  EXPECT_EQ(run_staged(2, options).summary.final_compressed_test_loss,
            whole.final_compressed_test_loss);
}

TEST(PipelineCheckpoint, WithoutCachesBeginsWithFirstVisits) {
  const TemporaryFolder folder;
  StagedOptions options{.settings = base({{"pipeline.forward", "uniform:bits=2"},
                                          {"pipeline.forward_memory", "aqsgd"},
                                          {"train.fixed_batches", "true"},  // none is new later
                                          {"pipeline.save_caches", "false"}})};
  options.places.out = folder.path() / "run";
  options.stop_after = 8;  // two epochs of four steps
  const StagedResult before = run_staged(4, options);
  EXPECT_EQ(before.pipelines[0].boundaries[0].forward.full, 20u);
  EXPECT_EQ(before.pipelines[7].boundaries[0].forward.full, 0u);
  options.stop_after = UINT64_MAX;
  options.places.resume = options.places.out;
  const StagedResult resumed = run_staged(4, options);
  EXPECT_EQ(resumed.pipelines[0].boundaries[0].forward.full, 20u);
  EXPECT_EQ(resumed.pipelines.back().boundaries[2].forward.full, 0u);
}

// Dropped samples aside, every epoch visits each once: in full while warming up, then never again.
TEST(PipelineWarmup, FillsTheCaches) {
  const StagedResult result =
      run_staged(4, {.settings = base({{"pipeline.forward", "uniform:bits=2"},
                                       {"pipeline.forward_memory", "aqsgd"},
                                       {"train.fixed_batches", "true"},
                                       {"pipeline.warmup", "2"}})});
  for (size_t step = 0; step < result.pipelines.size(); ++step) {
    const PipelineReport& report = result.pipelines[step];
    EXPECT_EQ(report.warming_up, step < 8);
    EXPECT_EQ(report.boundaries[1].forward.full, step < 8 ? 20u : 0u) << step;
  }
}

TEST(PipelineWarmup, CompressesNothing) {
  const Settings plain = base({{"train.epochs", "2"}, {"pipeline.backward", "fp32"}});
  const StagedResult dense = run_staged(4, {.settings = plain});
  const StagedResult warm =
      run_staged(4, {.settings = base({{"train.epochs", "2"},
                                       {"pipeline.warmup", "2"},
                                       {"pipeline.forward", "topk:density=0.25"},
                                       {"pipeline.shared_positions", "true"}})});
  EXPECT_TRUE(same_bits(dense.weights, warm.weights));
  EXPECT_EQ(dense.summary.codec_ratio, warm.summary.codec_ratio);
}

TEST(PipelineCheckpoint, IsForAsManyWorkers) {
  const TemporaryFolder folder;
  StagedOptions options{.settings = base({{"pipeline.stages", "2"}, {"train.epochs", "1"}})};
  options.places.out = folder.path() / "run";
  options.stop_after = 2;
  run_staged(2, options);
  options.places.resume = options.places.out;
  try {
    run_staged(4, options);
    ADD_FAILURE() << "resumed by other workers";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("saved by 2 workers; a pipeline goes on with as many"));
  }
}

TEST(PipelineCheckpoint, GivesWeightsToBeginWith) {
  const TemporaryFolder folder;
  StagedOptions options{.settings = base({{"train.epochs", "1"}})};
  options.places.out = folder.path() / "run";
  const StagedResult first = run_staged(4, options);
  const Task task = staged_task();
  load_weights(*task.module, options.places.out);
  size_t i = 0;
  for (const torch::Tensor& weight : task.module->parameters())
    EXPECT_TRUE(weight.equal(first.weights.at(i++)));

  const auto refused = [&](const std::string& from) -> std::string {
    try {
      load_weights(*task.module, from);
    } catch (const Error& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(refused(folder.path()), HasSubstr("no model.safetensors and no checkpoint"));
  EXPECT_THAT(refused(folder / "absent"), HasSubstr("absent"));
  std::ofstream(folder / "bad") << "no tensors";
  EXPECT_THAT(refused(folder / "bad"), HasSubstr("model.weights: "));
  const Task other = staged_task(0, /*normed=*/true);
  EXPECT_THROW(load_weights(*other.module, options.places.out), Error);
}

// Changes what stage 2 receives, in the message or in its length.
void expect_named(int tag, const std::string& what) {
  std::vector<std::string> told(4);
  EXPECT_THROW(run_local(4,
                         [&](Group& group) {
                           testing::TamperingGroup tampering(
                               group, [&](int, int seen, std::span<std::byte> message) {
                                 if (seen != tag || group.rank() != 2) return;
                                 message[tag == 1 ? 6 : message.size() - 1] ^= std::byte{1};
                               });
                           try {
                             train_staged(tampering, {.settings = base({})});
                           } catch (const std::exception& error) {
                             told[static_cast<size_t>(group.rank())] = error.what();
                             throw;
                           }
                         }),
               Error);
  EXPECT_THAT(told[2], HasSubstr(what));
  for (const int rank : {0, 1, 3})
    EXPECT_THAT(told[static_cast<size_t>(rank)], HasSubstr("rank 2 failed")) << rank;
}

TEST(PipelineBytes, ThatAreCorruptStopAllAndNameTheStage) {
  expect_named(2, "from stage 1 (rank 1): boundary 'second/forward': ");
  expect_named(1, "from stage 1 (rank 1): announces ");
}

// Gradients that pipelines exchange: of step `at`, what stage 1 of the second pipeline gets from
// the first.
std::vector<StagedResult> with_a_corrupt_exchange(const StagedOptions& options, uint64_t at) {
  const uint8_t codec = make_codec("topk").value().codec->info().id;
  std::vector<StagedResult> results(4);
  run_local(4, [&](Group& group) {
    testing::TamperingGroup tampering(group, [&](int, int, std::span<std::byte> message) {
      if (group.rank() != 3) return;
      auto frame = read_frame(message);
      if (frame && frame.value().header.codec == codec && frame.value().header.step == at)
        message.back() ^= std::byte{1};
    });
    results[static_cast<size_t>(group.rank())] = train_staged(tampering, options);
  });
  return results;
}

TEST(PipelineBytes, ThatAreCorruptInOneStagesExchangeSkipTheStepInAll) {
  const StagedOptions options{.settings = base({{"pipeline.stages", "2"},
                                                {"pipeline.forward", "uniform:bits=2"},
                                                {"pipeline.forward_memory", "aqsgd"},
                                                {"exchange.codec", "topk:density=0.2"}}),
                              .normed = true};
  const auto results = with_a_corrupt_exchange(options, 3);
  const StagedResult clean = run_staged(4, options);
  EXPECT_EQ(clean.summary.skipped_steps, 0u);
  EXPECT_EQ(results[0].summary.skipped_steps, 1u);
  EXPECT_THAT(results[0].notes, ::testing::Contains(HasSubstr("exchange of stage 1")));
  for (const StagedResult& result : results)
    EXPECT_TRUE(same_bits(result.weights, results[0].weights));
  EXPECT_FALSE(same_bits(results[0].weights, clean.weights));
  EXPECT_LT(results[0].steps.back().loss, results[0].steps.front().loss);  // caches still agree
}

}  // namespace
}  // namespace thinwire
