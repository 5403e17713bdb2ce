// Tests of tensor-parallel runs that are stopped and resumed, memories included.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/start_weights.h"
#include "train/temporary_folder.h"
#include "train/tensor/tensor_testing.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

Settings base(const Settings& more) {
  return with({{"tensor.ranks", "2"},
               {"train.micro_batches", "2"},
               {"train.drop_last", "true"},
               {"train.epochs", "2"},
               {"optimizer.momentum", "0.9"}},
              more);
}

class ResumedRanks : public ::testing::TestWithParam<Settings> {};
INSTANTIATE_TEST_SUITE_P(
    Memories, ResumedRanks,
    ::testing::Values(
        Settings{}, Settings{{"optimizer.name", "adam"}, {"optimizer.lr", "0.01"}},
        Settings{{"tensor.forward", "topk:density=0.25"},
                 {"tensor.backward", "topk:density=0.5"},
                 {"tensor.forward_memory", "ef"},
                 {"tensor.backward_memory", "ef21"}},
        Settings{{"exchange.codec", "sidco:density=0.1"}},
        Settings{{"exchange.codec", "topk:density=0.1"},
                 {"exchange.grouping", "global"},
                 {"exchange.momentum", "memory"}},
        Settings{{"tensor.autoencoder", "4x"}, {"tensor.layers", "1"}, {"tensor.forward", "qsgd"}},
        Settings{{"tensor.forward", "fp16 | 5steps: topk:density=table(0.5;0.25@1)"},
                 {"tensor.forward_memory", "ef"},
                 {"exchange.codec", "topk:density=0.2"}}));

TEST_P(ResumedRanks, GiveTheBitsOfARunThatNeverStopped) {
  for (const uint64_t after : {3, 6}) {
    const TemporaryFolder folder;
    TextOptions options{.settings = base(GetParam())};
    const StagedResult whole = run_text(4, options);
    options.places.out = folder.path() / "run";
    options.stop_after = after;
    EXPECT_FALSE(run_text(4, options).summary.finished);
    options.stop_after = UINT64_MAX;
    options.places.resume = options.places.out;
    const StagedResult resumed = run_text(4, options);
    EXPECT_TRUE(resumed.summary.finished);
    for (const std::string& note : resumed.notes) EXPECT_THAT(note, HasSubstr("resumed at"));
    EXPECT_TRUE(same_bits(resumed.weights, whole.weights)) << after;
    EXPECT_EQ(resumed.summary.sent_bytes_per_step, whole.summary.sent_bytes_per_step);
    EXPECT_EQ(resumed.summary.final_compressed_test_error,
              whole.summary.final_compressed_test_error);
  }
}

// The codecs of a test draw by the last step's number.
TEST(TensorCheckpoint, OfTheEndGivesTheSameCompressedTest) {
  const TemporaryFolder folder;
  TextOptions options{.settings =
                          base({{"tensor.forward", "qsgd:levels=2"}, {"train.epochs", "1"}})};
  options.places.out = folder.path() / "run";
  const RunSummary whole = run_text(2, options).summary;
  options.places.resume = options.places.out;
  EXPECT_EQ(run_text(2, options).summary.final_compressed_test_loss,
            whole.final_compressed_test_loss);
}

TEST(TensorMemories, TakeNoPartsOfUnlikeSizes) {
  const Settings uneven = base({{"tensor.forward", "topk:density=0.25"},
                                {"tensor.forward_memory", "ef21"},
                                {"train.batch", "6"}});
  EXPECT_NO_THROW(run_text(2, {.settings = uneven}));
  try {
    run_text(4, {.settings = uneven});
    ADD_FAILURE() << "6 samples were shared by 2 x 2 parts";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadOption);
    EXPECT_THAT(error.what(), HasSubstr("memory 'ef21' takes whole micro-batches only: a batch of "
                                        "6 must be a multiple of 4 (micro-batches x replicas)"));
  }
}

TEST(TensorCheckpoint, IsForAsManyWorkers) {
  const TemporaryFolder folder;
  TextOptions options{.settings = base({{"train.epochs", "1"}})};
  options.places.out = folder.path() / "run";
  options.stop_after = 2;
  run_text(2, options);
  options.places.resume = options.places.out;
  try {
    run_text(4, options);
    ADD_FAILURE() << "resumed by other workers";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("saved by 2 workers; a run with tensor.ranks goes on"));
  }
}

// It has the network as one worker trains it.
TEST(TensorCheckpoint, GivesTheWholeNetworksWeights) {
  const TemporaryFolder folder;
  TextOptions options{.settings = base({{"train.epochs", "1"}})};
  options.places.out = folder.path() / "run";
  const StagedResult first = run_text(2, options);
  const Task task = text_task();
  load_weights(*task.module, options.places.out);
  size_t i = 0;
  for (const torch::Tensor& weight : task.module->parameters())
    EXPECT_TRUE(weight.equal(first.weights.at(i++)));
}

}  // namespace
}  // namespace thinwire
