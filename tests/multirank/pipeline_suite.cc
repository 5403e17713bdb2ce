// Pipelines and tensor-parallel ranks on every kind of rank: processes end with the bits that
// threads end with.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>

#include "multirank/ranks.h"
#include "train/pipeline/pipeline_testing.h"
#include "train/temporary_folder.h"
#include "train/tensor/tensor_testing.h"

namespace thinwire {
namespace {

constexpr int kLayers = 4;  // of the network: stages at most

Settings staged(int stages) {
  return {{"pipeline.stages", std::to_string(stages)},
          {"train.micro_batches", "2"},
          {"train.drop_last", "true"},
          {"optimizer.momentum", "0.9"},
          {"pipeline.forward", "topk:density=0.25"},
          {"pipeline.backward", "uniform:bits=8"},
          {"pipeline.forward_memory", "aqsgd"},
          {"pipeline.backward_memory", "ef21"}};
}

void expect_the_bits_of_threads(int count, const Settings& settings) {
  const StagedOptions options{.settings = settings, .normed = true};
  const uint64_t expected = run_staged(count, options).summary.weights_xxh3;
  on_ranks(count, [&](Group& group) {
    EXPECT_EQ(train_staged(group, options).summary.weights_xxh3, expected) << count << " ranks";
  });
}

TEST(Pipelines, EndWithTheBitsOfThreads) {
  for (const int count : rank_counts())
    if (count <= kLayers) expect_the_bits_of_threads(count, staged(count));
}

TEST(Pipelines, ThatShareABatchEndWithTheBitsOfThreads) {
  for (const int count : rank_counts())
    if (count == 4 || count == 6)
      expect_the_bits_of_threads(
          count, with(staged(2), {{"exchange.codec", "topk:density=0.1"}, {"train.batch", "24"}}));
}

// With four, two networks.
TEST(TensorRanks, EndWithTheBitsOfThreads) {
  for (const int count : rank_counts()) {
    if (count != 2 && count != 4) continue;
    const TextOptions options{.settings = {{"tensor.ranks", "2"},
                                           {"train.micro_batches", "2"},
                                           {"train.drop_last", "true"},
                                           {"tensor.forward", "topk:density=0.25"},
                                           {"tensor.backward", "uniform:bits=8"},
                                           {"tensor.forward_memory", "ef"},
                                           {"tensor.autoencoder", "2x"},
                                           {"exchange.codec", "topk:density=0.1"}}};
    const uint64_t expected = run_text(count, options).summary.weights_xxh3;
    on_ranks(count, [&](Group& group) {
      EXPECT_EQ(train_text(group, options).summary.weights_xxh3, expected) << count << " ranks";
    });
  }
}

// Every rank finds its own part again: optimiser, memories and caches of its stage.
TEST(Pipelines, ResumeBitForBit) {
  for (const int count : rank_counts()) {
    if (count > kLayers) continue;
    on_ranks(count, [&](Group& group) {
      const TemporaryFolder folder;  // rank 0's is the one that all use
      char path[256] = {};
      std::strncpy(path, folder.path().c_str(), sizeof path - 1);
      group.broadcast(std::as_writable_bytes(std::span(path)), 0);

      // With four, two pipelines, whose statistics of batch norm are their own.
      StagedOptions options{.settings = staged(count == 4 ? 2 : count), .normed = true};
      const StagedResult whole = train_staged(group, options);
      options.places.out = path;
      options.stop_after = 6;
      EXPECT_FALSE(train_staged(group, options).summary.finished);
      options.places.resume = path;
      options.stop_after = UINT64_MAX;
      EXPECT_TRUE(same_bits(train_staged(group, options).weights, whole.weights));
      group.barrier();
    });
  }
}

}  // namespace
}  // namespace thinwire
