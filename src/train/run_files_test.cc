// Tests of what runs leave, and find, in folders where there were others.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "train/checkpoint.h"
#include "train/temporary_folder.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

ToyOptions into(const fs::path& out, const Settings& settings = {}) {
  ToyOptions toy{.settings = settings};
  toy.places.out = out.string();
  return toy;
}

std::optional<Error> failure_of(const ToyOptions& toy) {
  try {
    run_toy(2, toy);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// As by a kill: nothing says stop.
ToyOptions killed_in_step(int number, ToyOptions toy) {
  toy.change = [number](int /*rank*/, Task& task) {
    task.loss = [number, step = 0](const torch::Tensor& outputs,
                                   const torch::Tensor& targets) mutable {
      if (outputs.requires_grad() && ++step == number) throw std::runtime_error("killed");
      return torch::nn::functional::cross_entropy(outputs, targets);
    };
  };
  return toy;
}

// Contents by name.
std::map<std::string, std::string> files_below(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[fs::relative(entry.path(), folder).string()] =
        std::string((std::istreambuf_iterator<char>(file)), {});
  }
  return files;
}

std::vector<uint64_t> steps_of(const fs::path& run) {
  std::ifstream metrics(run / "metrics.jsonl");
  std::vector<uint64_t> steps;
  for (std::string line; std::getline(metrics, line);)
    if (const auto json = nlohmann::json::parse(line); json.contains("loss"))
      steps.push_back(json["step"].get<uint64_t>());
  return steps;
}

TEST(RunFolder, IsNoCheckpointWhateverItsName) {
  const TemporaryFolder folder;
  run_toy(2, into(folder / "run"));
  const fs::path kept = folder / "kept";
  fs::copy(list_checkpoints(folder / "run").back(), kept);
  fs::copy(folder / "run/recipe.toml", kept / "recipe.toml");  // even so
  const auto before = files_below(kept);
  for (const std::string& resume : {kept.string(), std::string()}) {
    ToyOptions toy = into(kept, {{"train.epochs", "3"}});
    toy.places.resume = resume;
    const auto failure = failure_of(toy);
    ASSERT_TRUE(failure) << resume;
    EXPECT_EQ(failure->code(), ErrorCode::kBadOption);
    EXPECT_THAT(failure->what(),
                HasSubstr(kept.string() + ": is a checkpoint; name another folder with --out"));
    EXPECT_EQ(files_below(kept), before);
  }
}

TEST(RunFolder, KeepsItsRunUntilAnotherCanStart) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  run_toy(2, into(run, {{"run.record_every", "4"}}));
  std::ofstream(run / "decisions.txt") << "of an earlier run";
  const auto before = files_below(run);
  ASSERT_TRUE(before.contains("summary.json"));
  ASSERT_TRUE(before.contains("signals/step-00000004.safetensors"));
  const auto failure =
      failure_of(into(run, {{"exchange.rules", "{nosuch.*} int8"}, {"run.record_every", "3"}}));
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->what(), HasSubstr("nosuch"));
  EXPECT_EQ(files_below(run), before);

  run_toy(2, into(run, {{"run.record_every", "3"}, {"train.max_steps", "4"}}));
  const auto after = files_below(run);
  EXPECT_FALSE(after.contains("decisions.txt"));
  EXPECT_FALSE(after.contains("signals/step-00000004.safetensors"));
  EXPECT_TRUE(after.contains("signals/step-00000003.safetensors"));
  EXPECT_THAT(steps_of(run), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(list_checkpoints(run), ElementsAre(run / "checkpoint-0000000004"));
}

// Or the next run would remove its checkpoints as those of a finished one.
TEST(RunFolder, OfARunThatWasKilledHasNoSummary) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  run_toy(2, into(run));
  EXPECT_ANY_THROW(run_toy(2, killed_in_step(8, into(run))));
  EXPECT_FALSE(fs::exists(run / "summary.json"));
  EXPECT_THAT(list_checkpoints(run), ElementsAre(run / "checkpoint-0000000005"));
  const auto failure = failure_of(into(run));
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->what(), HasSubstr("holds checkpoints of an unfinished run"));

  run_toy(2, into(folder / "longer"));
  ToyOptions longer = into(folder / "longer", {{"train.epochs", "4"}});
  longer.places.resume = longer.places.out;
  EXPECT_ANY_THROW(run_toy(2, killed_in_step(3, longer)));
  EXPECT_FALSE(fs::exists(folder / "longer/summary.json"));
}

TEST(RunFolder, OfAnotherRunGetsTheMetricsOfThisOneAlone) {
  const TemporaryFolder folder;
  ToyOptions first = into(folder / "first");
  first.stop_after = 4;
  run_toy(2, first);
  run_toy(2, into(folder / "second"));
  ToyOptions toy = into(folder / "second");
  toy.places.resume = first.places.out;
  run_toy(2, toy);
  EXPECT_THAT(steps_of(folder / "second"), ElementsAre(5, 6, 7, 8, 9, 10));

  toy = into(folder / "first");  // its own goes on
  toy.places.resume = (folder / "first/checkpoint-0000000004").string();
  run_toy(2, toy);
  EXPECT_THAT(steps_of(folder / "first"), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
}

TEST(RunFolder, HasFiguresOfEachRank) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  run_toy(3, into(run));
  for (int rank = 0; rank < 3; ++rank) {
    std::ifstream file(run / "ranks" / (std::to_string(rank) + ".json"));
    const auto json = nlohmann::json::parse(file);
    EXPECT_EQ(json["rank"], rank);
    EXPECT_GE(json["step"], 1);
    EXPECT_GT(json["loss"], 0.0);
    EXPECT_GT(json["times"]["compute"], 0.0);
    EXPECT_GE(json["times"]["wait"], 0.0);
  }
  std::ofstream(run / "ranks/notes.json") << "somebody's own";
  run_toy(2, into(run));
  const auto files = files_below(run / "ranks");
  EXPECT_THAT(files, ElementsAre(Key("0.json"), Key("1.json"), Key("notes.json")));
  run_toy(1, into(folder / "alone"));
  EXPECT_FALSE(fs::exists(folder / "alone/ranks")) << "metrics.jsonl has what there is to say";
}

// Recordings of a run before go, whoever made them; other files in a folder of that name stay.
TEST(RunFolder, LosesNothingThatIsNoRecording) {
  const TemporaryFolder folder;
  const fs::path signals = folder / "run/signals";
  fs::create_directories(signals / "photos");
  for (const char* name :
       {"mine.txt", "photos/1.png", "step-00000003.safetensors", "step-.safetensors"})
    std::ofstream(signals / name) << name;
  for (int run = 0; run < 2;
       ++run) {  // into a folder without a run, and into that of a finished one
    run_toy(1, into(folder / "run"));
    EXPECT_TRUE(fs::exists(signals / "mine.txt"));
    EXPECT_TRUE(fs::exists(signals / "photos/1.png"));
    EXPECT_TRUE(fs::exists(signals / "step-.safetensors"));
    EXPECT_FALSE(fs::exists(signals / "step-00000003.safetensors"));
  }
}

TEST(RunFolder, GetsACheckpointThoughNothingWasLeftToDo) {
  const TemporaryFolder folder;
  run_toy(2, into(folder / "first"));
  ToyOptions toy = into(folder / "second");
  toy.places.resume = (folder / "first").string();
  run_toy(2, toy);
  EXPECT_THAT(list_checkpoints(folder / "second"),
              ElementsAre(folder / "second/checkpoint-0000000010"));
  toy.places.resume = toy.places.out;
  toy.settings = {{"train.epochs", "3"}};
  EXPECT_EQ(run_toy(2, toy)[0].summary.steps, 15u);
}

}  // namespace
}  // namespace thinwire
