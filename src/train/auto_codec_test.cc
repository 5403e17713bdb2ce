// Tests of codec auto in training: notes, metrics, the record that repeats a run, checkpoints,
// mistakes.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // setenv

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "train/temporary_folder.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// Memories go from fp32 to a sparse codec, with an exception, and to int8.
std::string recorded(const TemporaryFolder& folder) {
  const std::string path = folder.path().string() + "/plan.txt";
  std::ofstream(path) << "thinwire decisions 1\n"
                         "0\tfp32\n"
                         "# few bytes\n"
                         "3\ttopk:density=0.1\tfp32\toutput.weight\n"
                         "7\tint8\n";
  return path;
}

ToyOptions following(const std::string& plan, const std::string& out) {
  return {
      .settings = {{"exchange.codec", "auto:loss=any,plan=" + plan}, {"optimizer.momentum", "0.9"}},
      .places = {.data = {}, .out = out, .resume = {}}};
}

std::vector<Json> steps_of(const std::string& out) {
  std::vector<Json> steps;
  std::ifstream file(out + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);)
    if (Json json = Json::parse(line); json.contains("loss")) steps.push_back(std::move(json));
  return steps;
}

TEST(AutoCodec, MetricsSayWhichCodecEachTensorHadWhen) {
  const TemporaryFolder folder;
  const std::string out = folder.path().string() + "/run";
  const auto results = run_toy(2, following(recorded(folder), out));
  EXPECT_THAT(results[0].notes, Contains("codec auto, step 3: few bytes"));
  const auto steps = steps_of(out);
  ASSERT_EQ(steps.size(), 10u);
  for (const Json& step : steps) {
    const uint64_t number = step["step"];
    EXPECT_EQ(step.contains("codecs"), number == 1 || number == 4 || number == 8) << number;
    EXPECT_EQ(step.contains("decisions"), step.contains("codecs")) << number;
  }
  const Json& sparse = steps[3]["codecs"];
  EXPECT_EQ(steps[3]["decisions"][0]["why"], "few bytes");
  bool found = false;
  for (const auto& [codec, tensors] : sparse.items())
    if (codec.starts_with("topk"))
      found = tensors == Json::parse(R"(["second.weight","first.weight"])") ||
              tensors == Json::parse(R"(["first.weight","second.weight"])");
  EXPECT_TRUE(found) << sparse;
  EXPECT_THAT(sparse["fp32"], Contains("output.weight"));
}

TEST(AutoCodec, AFixedCodecIsInTheMetricsOnce) {
  const TemporaryFolder folder;
  run_toy(2, {.settings = {{"exchange.codec", "int8"}},
              .places = {.data = {}, .out = folder.path().string(), .resume = {}}});
  const auto steps = steps_of(folder.path().string());
  ASSERT_TRUE(steps[0].contains("codecs"));
  EXPECT_THAT(steps[0]["codecs"]["int8:block=256"], Contains("first.weight"));
  for (size_t i = 1; i < steps.size(); ++i) EXPECT_FALSE(steps[i].contains("codecs"));
}

TEST(AutoCodec, TheRecordOfARunRepeatsIt) {
  const TemporaryFolder folder;
  const std::string out = folder.path().string() + "/run",
                    again = folder.path().string() + "/again";
  const auto first = run_toy(2, following(recorded(folder), out));
  const auto second = run_toy(2, following(out + "/decisions.txt", again));
  EXPECT_EQ(first[0].losses, second[0].losses);
  EXPECT_TRUE(same_bits(first[1].weights, second[1].weights));
  const auto other =
      run_toy(2, {.settings = {{"exchange.codec", "fp32"}, {"optimizer.momentum", "0.9"}}});
  EXPECT_FALSE(same_bits(first[0].weights, other[0].weights));
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string failure_of(const ToyOptions& options) {
  try {
    run_toy(2, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Shorter by its later decisions it would be no record of the run any more.
TEST(AutoCodec, ARunDoesNotFollowTheFileThatItWrites) {
  const TemporaryFolder folder;
  const std::string out = folder.path().string() + "/run", record = out + "/decisions.txt",
                    link = folder.path().string() + "/link.txt";
  run_toy(2, following(recorded(folder), out));
  const std::string before = text_of(record);
  std::filesystem::create_symlink(record, link);
  for (const std::string& plan : {record, out + "/../run/decisions.txt", link}) {
    ToyOptions again = following(plan, out);
    again.settings.emplace_back("train.max_steps", "4");
    EXPECT_THAT(failure_of(again), HasSubstr("plan " + plan + " is the file to which a run in " +
                                             out + " records its decisions"));
  }
  EXPECT_EQ(text_of(record), before);
}

TEST(AutoCodec, AResumedRunNeedsThePlanThatItFollowed) {
  const TemporaryFolder folder;
  const std::string out = folder.path().string() + "/run";
  ToyOptions options = following(recorded(folder), out);
  options.stop_after = 5;
  run_toy(2, options);
  const auto before = text_of(out + "/decisions.txt");
  options.stop_after = UINT64_MAX;
  options.places.resume = out;
  std::ofstream(folder.path() / "plan.txt") << "thinwire decisions 1\n0\tfp32\n3\tint8\n";
  EXPECT_THAT(failure_of(options),
              AllOf(HasSubstr("plan.txt has 'int8' from step 3 on"),
                    HasSubstr("followed 'topk:density=0.1', 'fp32' for output.weight from")));
  EXPECT_EQ(text_of(out + "/decisions.txt"), before);
  recorded(folder);
  EXPECT_EQ(failure_of(options), "");
}

TEST(AutoCodec, AResumedRunGoesOnAlike) {
  const TemporaryFolder folder;
  const std::string plan = recorded(folder);
  const auto whole = run_toy(2, following(plan, ""));
  for (const uint64_t stop : {uint64_t{2}, uint64_t{5}, uint64_t{8}}) {
    const std::string out = folder.path().string() + "/stopped" + std::to_string(stop);
    ToyOptions options = following(plan, out);
    options.stop_after = stop;
    run_toy(2, options);
    options.stop_after = UINT64_MAX;
    options.places.resume = out;
    const auto resumed = run_toy(2, options);
    EXPECT_TRUE(same_bits(resumed[0].weights, whole[0].weights)) << stop;
    std::ifstream file(out + "/decisions.txt");
    const std::string text((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    EXPECT_THAT(text, HasSubstr("\n3\ttopk:density=0.1\tfp32\toutput.weight\n7\tint8\n"));
    run_toy(2, options);  // with no step left to decide in
    std::ifstream again(out + "/decisions.txt");
    EXPECT_EQ(std::string((std::istreambuf_iterator<char>(again)), {}), text);
  }
}

TEST(AutoCodec, MeasuresAndExplainsItself) {
  const TemporaryFolder folder;
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  const auto results = run_toy(2, {.settings = {{"exchange.codec", "auto"}}});
  ASSERT_FALSE(results[0].notes.empty());
  EXPECT_THAT(results[0].notes[0], HasSubstr("codec auto, step 0: fp32"));
  EXPECT_THAT(results[0].notes[0], HasSubstr("calibrated and probed in"));
  EXPECT_TRUE(std::ifstream(folder.path().string() + "/thinwire/costs.txt").good());
}

TEST(AutoCodec, WhatIsOwedCanBeSentAtTheEnd) {
  const TemporaryFolder folder;
  ToyOptions options = following(recorded(folder), "");
  options.settings.emplace_back("exchange.flush", "measure");
  const auto results = run_toy(2, options);
  ASSERT_TRUE(results[0].summary.flush);
  EXPECT_GT(results[0].summary.flush->owed_norm, 0);
}

TEST(AutoCodec, MistakesNameTheKey) {
  const auto faults = [](const Settings& more) {
    Settings all = {{"exchange.codec", "auto"}};
    all.insert(all.end(), more.begin(), more.end());
    std::string text;
    for (const RecipeFault& fault : find_faults(toy_recipe(all).options))
      text += fault.key + ": " + std::string(fault.status.message()) + "\n";
    return text;
  };
  EXPECT_EQ(faults({}), "");
  EXPECT_THAT(faults({{"sync.method", "leader"}}),
              HasSubstr("exchange.codec: auto chooses codecs"));
  EXPECT_THAT(faults({{"pipeline.stages", "2"}}),
              HasSubstr("exchange.codec: auto predicts no pip"));
  EXPECT_THAT(faults({{"exchange.inside", "2"}}), HasSubstr("exchange.inside: "));
  EXPECT_THAT(faults({{"exchange.combine", "median"}}), HasSubstr("exchange.combine: "));
  EXPECT_THAT(faults({{"exchange.method", "gather"}}), HasSubstr("exchange.method: "));
  EXPECT_THAT(faults({{"exchange.codec", "auto:los=any"}}), HasSubstr("did you mean 'loss'"));
}

}  // namespace
}  // namespace thinwire
