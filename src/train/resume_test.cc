// Tests that a run that is stopped and resumed ends with the bits of one that was not.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "train/checkpoint.h"
#include "train/temporary_folder.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

struct Method {
  const char* name;
  Settings settings;
};

std::ostream& operator<<(std::ostream& out, const Method& method) { return out << method.name; }

const Method kMethods[] = {
    {"fp32Momentum", {{"optimizer.momentum", "0.9"}, {"schedule.name", "cosine"}}},
    {"topkAdam",
     {{"exchange.codec", "topk:density=0.1"},
      {"optimizer.name", "adam"},
      {"optimizer.lr", "0.01"}}},
    {"topkWholeAdam",
     {{"exchange.codec", "topk:density=0.1"},
      {"exchange.momentum", "optimizer"},
      {"optimizer.name", "adam"},
      {"optimizer.lr", "0.01"}}},
    {"topkAdamOfRanks",
     {{"exchange.codec", "topk:density=0.1"},
      {"optimizer.second_moment", "ranks"},
      {"optimizer.name", "adam"},
      {"optimizer.lr", "0.01"},
      {"clip.norm", "0.5"}}},
    {"topkFrozenAdam",
     {{"exchange.codec", "fp32 | 0.8: topk:density=0.1"},
      {"optimizer.second_moment", "frozen"},
      {"optimizer.freeze_after", "0.8"},
      {"optimizer.name", "adam"},
      {"optimizer.lr", "0.01"}}},
    {"topkNovoGrad",
     {{"exchange.codec", "topk:density=0.1"},
      {"optimizer.name", "novograd"},
      {"optimizer.lr", "0.01"},
      {"optimizer.weight_decay", "0.001"}}},
    {"replay", {{"run.attack", "replay"}}},
    {"adacomp", {{"exchange.codec", "adacomp"}, {"optimizer.momentum", "0.9"}}},
    {"demo",
     {{"exchange.codec", "demo:chunk=8,density=0.1"},
      {"optimizer.name", "signsgd"},
      {"optimizer.lr", "0.01"},
      {"optimizer.weight_decay", "0.05"}}},
    {"sidco", {{"exchange.codec", "sidco:density=0.05"}, {"optimizer.momentum", "0.9"}}},
    {"memoryMomentum",
     {{"exchange.codec", "topk:density=0.1"},
      {"optimizer.momentum", "0.9"},
      {"optimizer.dampening", "0.2"},
      {"optimizer.weight_decay", "0.05"},
      {"clip.norm", "0.5"}}},
};

class Resume : public ::testing::TestWithParam<Method> {};

TEST_P(Resume, ContinuesBitForBit) {
  const TemporaryFolder folder;
  ToyOptions toy{.settings = GetParam().settings, .dropout = 0.25, .norm = true};
  toy.settings.emplace_back("train.evaluate_every", "0.4");  // every second step
  const auto whole = run_toy(3, toy);

  for (const uint64_t stop : {3, 5}) {  // within an epoch, where a checkpoint is due anyway
    ToyOptions first = toy;
    first.places.out = (folder / std::to_string(stop)).string();
    first.stop_after = stop;
    const auto stopped = run_toy(3, first);
    EXPECT_FALSE(stopped[0].summary.finished);
    EXPECT_EQ(stopped[0].summary.steps, stop);

    ToyOptions second = toy;
    second.places.out = second.places.resume = first.places.out;
    const auto resumed = run_toy(3, second);
    EXPECT_TRUE(resumed[0].summary.finished);
    EXPECT_EQ(resumed[0].summary.steps, 10u);
    EXPECT_THAT(resumed[0].notes, Contains(HasSubstr("resumed at step " + std::to_string(stop))));
    for (size_t rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(same_bits(resumed[rank].weights, whole[rank].weights)) << stop;
    EXPECT_EQ(resumed[0].summary.weights_xxh3, whole[0].summary.weights_xxh3);
    EXPECT_EQ(resumed[0].summary.final_test_loss, whole[0].summary.final_test_loss);
    EXPECT_EQ(resumed[0].summary.codec_ratio, whole[0].summary.codec_ratio);
    EXPECT_EQ(resumed[0].summary.best_test_error, whole[0].summary.best_test_error);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Resume, ::testing::ValuesIn(kMethods),
                         [](const auto& row) { return row.param.name; });

// Interrupted as by a kill: nothing says stop, the folder has a checkpoint of the first epoch and
// metrics of later steps.
TEST(ResumeFiles, MetricsHoldEveryStepOnce) {
  const TemporaryFolder folder;
  ToyOptions toy;
  toy.places.out = (folder / "run").string();
  toy.change = [](int rank, Task& task) {
    if (rank != 1) return;
    task.loss = [step = 0](const torch::Tensor& outputs, const torch::Tensor& targets) mutable {
      if (outputs.requires_grad() && ++step == 8) throw std::runtime_error("killed");
      return torch::nn::functional::cross_entropy(outputs, targets);
    };
  };
  EXPECT_ANY_THROW(run_toy(2, toy));

  ToyOptions again;
  again.places.out = toy.places.out;
  EXPECT_THROW(run_toy(2, again), Error);  // it could still be resumed
  ToyOptions other;
  other.places.out = (folder / "other").string();
  other.stop_after = 3;
  run_toy(2, other);
  again.places.resume = other.places.out;
  EXPECT_THROW(run_toy(2, again), Error);  // not from another run
  again.places.resume = toy.places.out;
  const auto resumed = run_toy(2, again);
  EXPECT_TRUE(same_bits(resumed[0].weights, run_toy(2, {})[0].weights));

  std::ifstream metrics(folder / "run/metrics.jsonl");
  std::vector<uint64_t> steps, tests;
  for (std::string line; std::getline(metrics, line);) {
    const auto json = nlohmann::json::parse(line);
    (json.contains("loss") ? steps : tests).push_back(json["step"].get<uint64_t>());
  }
  EXPECT_EQ(steps, (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(tests, (std::vector<uint64_t>{5, 10}));

  std::ifstream file(folder / "run/summary.json");
  const auto summary = nlohmann::json::parse(file);
  for (const char* key :
       {"recipe", "world_size", "codec", "steps", "samples", "final_test_error", "best_test_error",
        "dense_bytes_per_step", "sent_bytes_per_step", "codec_ratio", "wire_ratio",
        "achieved_over_target", "seconds", "skipped_steps", "weights_xxh3", "kinds", "processor",
        "cores", "thinwire"})
    EXPECT_TRUE(summary.contains(key)) << key;
  EXPECT_EQ(summary["steps"], 10);
  EXPECT_EQ(summary["kinds"]["linear"]["values"], 10 * (8 * 16 + 16 * 16 + 16 * 3));
  EXPECT_TRUE(std::filesystem::exists(folder / "run/recipe.toml"));

  again.places.resume.clear();
  EXPECT_NO_THROW(run_toy(2, again));  // finished: may be done anew
}

TEST(ResumeFiles, AtAnotherNumberOfRanksItSaysSo) {
  const TemporaryFolder folder;
  ToyOptions toy{.settings = {{"exchange.codec", "topk:density=0.1"}}, .norm = true};
  toy.places.out = (folder / "run").string();
  toy.stop_after = 4;
  run_toy(2, toy);
  toy.places.resume = toy.places.out;
  toy.stop_after = UINT64_MAX;
  const auto resumed = run_toy(3, toy);
  EXPECT_THAT(resumed[0].notes, Contains(AllOf(HasSubstr("saved by 2 ranks, resumed by 3"),
                                               HasSubstr("redistributed"))));
  EXPECT_EQ(resumed[0].summary.steps, 10u);
  EXPECT_TRUE(same_bits(resumed[0].weights, resumed[2].weights));
}

TEST(ResumeFiles, AnotherRecipeIsRefusedNamingTheKey) {
  const TemporaryFolder folder;
  ToyOptions toy;
  toy.places.out = (folder / "run").string();
  toy.stop_after = 4;
  run_toy(1, toy);
  toy.places.resume = toy.places.out;
  toy.settings = {{"train.batch", "30"}};
  try {
    run_toy(1, toy);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMismatch);
    EXPECT_THAT(error.what(), HasSubstr("train.batch: 20 before, 30 now"));
  }
  toy.settings = {{"train.epochs", "3"}, {"optimizer.lr", "0.05"}};
  toy.stop_after = UINT64_MAX;
  const auto longer = run_toy(1, toy);
  EXPECT_EQ(longer[0].summary.steps, 15u);
  EXPECT_THAT(longer[0].notes, Contains("resumed with train.epochs: 2 before, 3 now"));
}

TEST(ResumeFiles, WeightsAreUnderTheModulesNames) {
  const TemporaryFolder folder;
  ToyOptions toy{.norm = true};
  toy.places.out = (folder / "run").string();
  run_toy(2, toy);
  run_local(1, [&](Group& group) {
    std::vector<std::string> names;
    for (const StateArray& array : load_checkpoint(group, toy.places.out).model)
      names.push_back(array.name);
    EXPECT_THAT(names, ::testing::IsSupersetOf({"first.weight", "output.bias", "norm.weight",
                                                "norm.running_mean", "norm.num_batches_tracked"}));
  });
}

}  // namespace
}  // namespace thinwire
