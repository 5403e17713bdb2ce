// Tests of small checkpoints of pipelines: all stages are in the file, and training is not
// disturbed.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/named_tensors.h"
#include "train/pipeline/pipeline_testing.h"
#include "train/saved_model.h"
#include "train/temporary_folder.h"

namespace thinwire {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr uint64_t kHeldOut = 60;

StagedOptions staged(const TemporaryFolder& folder, const std::string& name,
                     const std::string& compress) {
  StagedOptions options{.settings = {{"pipeline.stages", "2"},
                                     {"train.micro_batches", "2"},
                                     {"train.drop_last", "true"},
                                     {"optimizer.momentum", "0.9"},
                                     {"pipeline.forward", "uniform:bits=4"},
                                     {"train.checkpoint_every", "0.5"},
                                     {"checkpoint.keep", "50"},
                                     {"checkpoint.compress", compress}},
                        .normed = true,
                        .hidden = 48,
                        .held_out = kHeldOut};
  options.places.out = folder / name;
  return options;
}

// By a pass over the held-out samples that the run knows nothing of.
double loss_of(const StateArrays& arrays) {
  const Task task = with_defaults(staged_task(0, true, 48));
  {
    const torch::NoGradGuard no_grad;
    for (const NamedTensor& weight : named_weights(*task.module))
      from_state(arrays, weight).or_throw();
  }
  return own_loss(task, ToyData(kHeldOut, 2), kHeldOut, 16);
}

// Two pipelines of two stages.
TEST(PipelineSmall, FilesKeepTheToleranceAndTrainingIsNotDisturbed) {
  const TemporaryFolder folder;
  const StagedResult exact = run_staged(4, staged(folder, "exact", "exact"));
  const StagedResult small =
      run_staged(4, staged(folder, "small", "quantised:tolerance=0.05,samples=0"));
  EXPECT_TRUE(same_bits(exact.weights, small.weights));
  const auto all = list_checkpoints(folder / "small"),
             exact_ones = list_checkpoints(folder / "exact");
  ASSERT_EQ(all.size(), exact_ones.size());
  ASSERT_GE(all.size(), 4u);
  for (size_t i = 0; i < all.size(); ++i) {
    std::ifstream file(all[i] / "progress.json");
    const auto report = nlohmann::json::parse(file).at("small");
    const double loss = loss_of(read_saved_model(all[i]).arrays);
    EXPECT_NEAR(loss, report["loss"].get<double>(), 1e-5 * loss);
    EXPECT_NEAR(loss_of(read_saved_model(exact_ones[i]).arrays), report["exact_loss"].get<double>(),
                1e-5);
    EXPECT_LE(loss, 1.05 * report["exact_loss"].get<double>() + 1e-5);
    EXPECT_LT(2 * report["bytes"].get<uint64_t>(), report["exact_bytes"].get<uint64_t>());
    size_t clustered = 0;  // of both stages
    for (const auto& [name, treatment] : report["treatments"].items())
      clustered += treatment.get<int>() > 0;
    EXPECT_EQ(clustered, 2u);
  }
}

TEST(PipelineSmall, ARunGoesOnFromTheWeightsOfTheFile) {
  const TemporaryFolder folder;
  StagedOptions options = staged(folder, "run", "quantised:tolerance=0.05,samples=0");
  options.stop_after = 4;
  run_staged(2, options);
  const SavedModel saved = read_saved_model(folder / "run");
  options.places.resume = options.places.out;
  options.places.out.clear();
  options.stop_after = UINT64_MAX;
  StagedOptions still = options;  // no step is left: the weights are those that were loaded
  still.settings.emplace_back("train.max_steps", "4");
  const StagedResult loaded = run_staged(2, still);
  EXPECT_THAT(loaded.notes, Contains(HasSubstr("small checkpoint")));
  const Task task = staged_task(0, true, 48);
  const auto names = named_weights(*task.module);
  ASSERT_EQ(names.size(), loaded.weights.size());
  for (size_t i = 0; i < names.size(); ++i) {
    NamedTensor want{names[i].name, torch::empty_like(names[i].tensor)};
    from_state(saved.arrays, want).or_throw();
    EXPECT_TRUE(want.tensor.equal(loaded.weights[i])) << want.name;
  }
  const StagedResult rest = run_staged(2, options);
  EXPECT_TRUE(rest.summary.finished);
  EXPECT_EQ(rest.summary.steps, 8u);
}

}  // namespace
}  // namespace thinwire
