// Tests of recorded signals: they come back as they were, and other files are refused.
// SPDX-License-Identifier: Apache-2.0
#include "train/signal_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "thinwire/trainer.h"
#include "train/durable_file.h"
#include "train/safetensors.h"
#include "train/temporary_folder.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<RecordedStep> read_all(const std::filesystem::path& folder) {
  std::vector<RecordedStep> steps;
  read_recorded_steps(folder.string(), [&](const RecordedStep& step) { steps.push_back(step); });
  return steps;
}

std::string failure_of(const std::filesystem::path& folder) {
  try {
    read_all(folder);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SignalRecorder, GivesBackWhatItSaw) {
  const TemporaryFolder folder;
  const StreamSpec one{.name = "model",
                       .tensors = {{.name = "w", .shape = {2, 2}, .kind = TensorKind::kConvolution},
                                   {.name = "b", .shape = {1}, .kind = TensorKind::kBias}}};
  const StreamSpec two = single_tensor({.name = "u", .shape = {3}, .kind = TensorKind::kOther});
  SignalRecorder recorder(folder / "signals", 5);
  for (uint64_t step = 0; step <= 10; ++step) {
    const float base = static_cast<float>(step);
    const std::vector<float> values = {base, 1, 2, 3, 4}, fresh = {5, base, 6, 7, 8},
                             other(3, base);
    recorder.observe(one, {.values = values, .fresh = fresh}, {.step = step});
    recorder.observe(two, {.values = other, .fresh = other}, {.step = step});
    recorder.end_step(/*skipped=*/step == 5);
  }
  const auto steps = read_all(folder / "signals");
  ASSERT_EQ(steps.size(), 2u);  // 0 and 10; 5 was skipped
  EXPECT_EQ(steps[1].step, 10u);
  ASSERT_EQ(steps[1].signals.size(), 2u);
  const RecordedSignal& model = steps[1].signals[0];
  EXPECT_EQ(model.stream.name, "model");
  ASSERT_EQ(model.stream.tensors.size(), 2u);
  EXPECT_EQ(model.stream.tensors[0].name, "w");
  EXPECT_EQ(model.stream.tensors[0].kind, TensorKind::kConvolution);
  EXPECT_THAT(model.stream.tensors[0].shape, ElementsAre(2, 2));
  EXPECT_THAT(model.values, ElementsAre(10, 1, 2, 3, 4));
  EXPECT_THAT(model.fresh, ElementsAre(5, 10, 6, 7, 8));
  EXPECT_THAT(steps[1].signals[1].values, ElementsAre(10, 10, 10));
  EXPECT_TRUE(steps[1].signals[1].fresh.empty());
}

TEST(SignalRecorder, FilesThatAreNoStepsAreNamed) {
  const TemporaryFolder folder;
  EXPECT_THAT(failure_of(folder / "nowhere"), HasSubstr("holds no recorded steps"));
  std::ofstream(folder / "step-00000001.safetensors") << "something else";
  EXPECT_THAT(failure_of(folder.path()), HasSubstr("step-00000001.safetensors"));
}

// What training leaves: the gradient in the first step, gradient and residual later.
// Shapes in the metadata ask for four terabytes; the file holds five values.
TEST(SignalRecorder, ShapesThatDoNotFitTheFileAreRefused) {
  const TemporaryFolder folder;
  const std::vector<float> values(5);
  const TensorFile file{
      .metadata = {{"step", "3"},
                   {"streams", R"([{"name": "w", "tensors": [{"name": "w", "kind": "linear", )"
                               R"("shape": [1000000, 1000000]}]}])"}},
      .arrays = {make_state("w/values", std::span<const float>(values), OnResize::kCopy)}};
  replace_durably(folder / "step-00000003.safetensors", write_safetensors(file));
  EXPECT_THAT(failure_of(folder.path()), HasSubstr("step-00000003.safetensors: not a recorded"));
}

TEST(SignalRecorder, TrainingRecordsRankZero) {
  const TemporaryFolder folder;
  ToyOptions toy{.settings = {{"exchange.codec", "topk:density=0.1"}, {"run.record_every", "4"}}};
  toy.places.out = (folder / "run").string();
  run_toy(2, toy);
  const auto steps = read_all(folder / "run/signals");
  ASSERT_EQ(steps.size(), 3u);  // of ten steps
  EXPECT_EQ(steps[2].step, 8u);
  ASSERT_EQ(steps[0].signals.size(), 3u);  // weights; biases are dense
  for (const RecordedSignal& signal : steps[2].signals) {
    EXPECT_EQ(signal.stream.count(), signal.values.size());
    EXPECT_GT(measure(signal.values).square_sum, 0) << signal.stream.name;
    EXPECT_EQ(signal.fresh.size(), signal.values.size());
    EXPECT_NE(signal.fresh, signal.values);
  }
}

}  // namespace
}  // namespace thinwire
