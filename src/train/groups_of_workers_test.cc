// Tests of training with groups of workers (exchange.inside): weights, bytes, checkpoints,
// mistakes.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "train/temporary_folder.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ToyOptions toy_of(const std::string& inside) {
  return {.settings = {{"exchange.codec", "topk:density=0.1"},
                       {"exchange.inside", inside},
                       {"optimizer.momentum", "0.9"}},
          .norm = true};
}

TEST(GroupsOfWorkers, WithoutLossTrainAsAllWorkersTogether) {
  ToyOptions flat = toy_of("1"), grouped = toy_of("2");
  flat.settings[0].second = grouped.settings[0].second = "fp32";
  const auto a = run_toy(4, flat), b = run_toy(4, grouped);
  EXPECT_LT(distance(a[0].weights, b[0].weights), 1e-4);
  for (const ToyResult& result : b)  // but for statistics of batches, which are each worker's own
    for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(result.weights[i].equal(b[0].weights[i]));
  EXPECT_LT(b[0].losses.back(), b[0].losses.front());
}

TEST(GroupsOfWorkers, AResumedRunGoesOnToTheBitAndOthersGoOn) {
  const TemporaryFolder folder;
  const auto toy_with_mask = [](const std::string& inside) {  // the bound below is for its steps
    ToyOptions toy = toy_of(inside);
    toy.settings.emplace_back("exchange.feedback", "dgc");
    return toy;
  };
  const auto whole = run_toy(4, toy_with_mask("2"));
  ToyOptions first = toy_with_mask("2");
  first.places.out = (folder / "run").string();
  first.stop_after = 3;
  run_toy(4, first);
  const auto resume = [&](const std::string& inside) {
    ToyOptions second = toy_with_mask(inside);
    second.places.out = (folder / ("in groups of " + inside)).string();
    std::filesystem::copy(folder / "run", second.places.out,
                          std::filesystem::copy_options::recursive);
    second.places.resume = second.places.out;
    return run_toy(4, second);
  };
  const auto resumed = resume("2");
  for (size_t rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(same_bits(resumed[rank].weights, whole[rank].weights)) << rank;
  for (const char* other : {"1", "4"}) {
    const auto moved = resume(other);
    EXPECT_TRUE(moved[0].summary.finished);
    EXPECT_LT(distance(moved[0].weights, whole[0].weights), 0.5) << other;
  }
  EXPECT_THROW(resume("3"), Error);
}

TEST(GroupsOfWorkers, BytesOfEachLevelAreInMetricsAndSummary) {
  const TemporaryFolder folder;
  ToyOptions toy = toy_of("2");
  toy.places.out = (folder / "run").string();
  const RunSummary summary = run_toy(4, toy)[0].summary;
  EXPECT_GT(summary.inside_bytes_per_step, 0);
  EXPECT_GT(summary.between_bytes_per_step, 0);
  EXPECT_EQ(summary.inside_bytes_per_step + summary.between_bytes_per_step,
            summary.sent_bytes_per_step);
  std::ifstream metrics(folder / "run/metrics.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(metrics, line));
  const auto step = nlohmann::json::parse(line);
  EXPECT_EQ(step["inside_bytes"].get<uint64_t>() + step["between_bytes"].get<uint64_t>(),
            step["sent_bytes"].get<uint64_t>());
  std::ifstream file(folder / "run/summary.json");
  const auto json = nlohmann::json::parse(file);
  EXPECT_EQ(json["inside_bytes_per_step"], summary.inside_bytes_per_step);
  EXPECT_EQ(json["between_bytes_per_step"], summary.between_bytes_per_step);

  EXPECT_EQ(run_toy(2, toy_of("1"))[0].summary.inside_bytes_per_step, 0);
}

// The key to blame, and what is wrong.
std::string fault_of(const std::vector<std::pair<std::string, std::string>>& settings) {
  const auto faults = find_faults(parse_options("test", recipe_keys(), settings).value());
  return faults.empty() ? "" : faults[0].key + ": " + faults[0].status.message();
}

TEST(GroupsOfWorkers, MistakesAreFoundInTheRecipe) {
  EXPECT_EQ(fault_of({{"exchange.inside", "2"}}), "");
  EXPECT_THAT(fault_of({{"exchange.inside", "2"}, {"sync.method", "local:tau=2"}}),
              AllOf(HasSubstr("exchange.inside: "), HasSubstr("not for local methods")));
  EXPECT_THAT(fault_of({{"exchange.inside", "2"}, {"pipeline.stages", "2"}}),
              HasSubstr("not for pipelines"));
  EXPECT_THAT(
      fault_of(
          {{"exchange.inside", "2"}, {"exchange.codec", "topk"}, {"exchange.feedback", "ef21"}}),
      AllOf(HasSubstr("exchange.inside: "), HasSubstr("memory ef21")));
  try {
    run_toy(4, toy_of("3"));
    ADD_FAILURE() << "groups of 3 of 4 workers";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("do not make up 4 ranks; choose one of 1, 2, 4"));
  }
}

}  // namespace
}  // namespace thinwire
