// Tests of factored models: whole runs on small files, whose factors are read back and multiplied
// out.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "core/random.h"
#include "thinwire/factor.h"
#include "train/checkpoint.h"
#include "train/data/data_sets.h"
#include "train/data/data_test_files.h"
#include "train/evaluate.h"
#include "train/models/models.h"
#include "train/recipe_parts.h"
#include "train/safetensors.h"
#include "train/saved_run.h"
#include "train/start_weights.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

// Runs on lines that the test makes in the place of the census's.
class FactoredRun : public FolderTest {
 protected:
  static constexpr uint64_t kTraining = 300, kTest = 90;

  FactoredRun() {
    write("adult/adult-train.csv", lines(kTraining, 0));
    write("adult/adult-test.csv", lines(kTest, 1));
  }

  // Five values of each category; the label follows from two columns.
  static std::string lines(uint64_t count, uint32_t stream) {
    const RandomKey key{.seed = 21, .use = RandomUse::kTest, .step = 0, .stream = stream};
    std::string text;
    for (uint64_t i = 0; i < count; ++i) {
      uint32_t drawn[14];
      // The first five lines have every value, so that the test's are known.
      for (uint64_t c = 0; c < 14; ++c)
        drawn[c] = i < 5 ? static_cast<uint32_t>(i) : random_word(key, 14 * i + c) % 5;
      for (const uint32_t value : drawn) text += std::to_string(value) + ", ";
      text += drawn[0] + drawn[6] > 4 ? ">50K\n" : "<=50K\n";
    }
    return text;
  }

  std::string train(const Settings& more = {}) {
    Settings all = {{"data.name", "adult"},       {"model.name", "mlp"},
                    {"model.hidden", "32"},       {"model.embedding", "8"},
                    {"train.epochs", "6"},        {"train.evaluate_batch", "64"},
                    {"optimizer.momentum", "0.9"}};
    all.insert(all.end(), more.begin(), more.end());
    const Recipe recipe = toy_recipe(all);
    const std::string out = (folder_ / "run").string();
    RunPlaces places;
    places.data = folder_.string();
    places.out = out;
    run_local(1, [&](Group& group) { train_recipe(recipe, places, group, {}); });
    return out;
  }

  FactorRequest request(const std::string& run) const {
    FactorRequest wanted;
    wanted.run = run;
    wanted.data = folder_.string();
    wanted.out = (folder_ / "factored.safetensors").string();
    return wanted;
  }

  StateArrays written() const {
    std::ifstream file(folder_ / "factored.safetensors", std::ios::binary);
    const std::string raw((std::istreambuf_iterator<char>(file)), {});
    return read_safetensors("factored", std::as_bytes(std::span(raw))).value().arrays;
  }

  static std::vector<std::string> names(const StateArrays& arrays) {
    std::vector<std::string> all;
    for (const StateArray& array : arrays) all.push_back(array.name);
    return all;
  }

  static torch::Tensor array(const StateArrays& arrays, const std::string& name) {
    const auto found =
        std::find_if(arrays.begin(), arrays.end(), [&](const auto& a) { return a.name == name; });
    if (found == arrays.end()) throw Error(ErrorCode::kMismatch, name + " is not there");
    torch::Tensor values =
        torch::empty(std::vector<int64_t>(found->shape.begin(), found->shape.end()));
    std::copy(found->data.begin(), found->data.end(),
              static_cast<std::byte*>(values.mutable_data_ptr()));
    return values;
  }

  // The run's network with these weights, and its data.
  struct Network {
    DataSplits data;
    Task task;
  };
  Network network(const std::string& run) const {
    const fs::path newest = find_checkpoints(run).back();
    const Options recipe = recipe_of(load_model(newest), newest);
    Network one{.data = make_data_set(data_request(recipe, folder_.string())), .task = {}};
    one.task = with_defaults(make_model(model_options(recipe), one.data.shape));
    load_weights(*one.task.module, run);
    one.task.module->eval();
    return one;
  }

  static Batch all_of(const Dataset& set) {
    std::vector<uint64_t> ids(set.size());
    std::iota(ids.begin(), ids.end(), uint64_t{0});
    return set.fetch(ids, {});
  }
};

TEST_F(FactoredRun, HasTheErrorOfTheFactorsInTheFile) {
  const torch::NoGradGuard no_grad;
  const std::string run = train();
  FactorRequest wanted = request(run);
  wanted.rank = 3;
  const FactorReport report = factor_model(wanted);
  EXPECT_EQ(report.model, "mlp");
  EXPECT_EQ(report.data, "adult");
  EXPECT_EQ(report.calibration, kTraining);  // there are fewer than 2,048
  EXPECT_EQ(report.test_samples, kTest);
  ASSERT_EQ(report.layers.size(), 4u);
  std::vector<std::string> layers;
  for (const FactoredLayer& layer : report.layers) layers.push_back(layer.name);
  EXPECT_THAT(layers, ElementsAre("embedding", "hidden1", "hidden2", "output"));
  EXPECT_TRUE(report.layers[0].embedding);
  EXPECT_EQ(report.layers[0].rows, 40u);
  EXPECT_EQ(report.layers[0].factored, 3u * (40 + 8) + 8);
  EXPECT_EQ(report.layers[1].factored, 3u * (32 + 70) + 32);
  EXPECT_EQ(report.layers[3].rank, 0u);  // 2 x 32 at rank 2 would be larger
  EXPECT_EQ(report.layers[3].factored, report.layers[3].parameters);
  uint64_t factored = 0;
  for (const FactoredLayer& layer : report.layers) factored += layer.factored;
  EXPECT_EQ(report.factored, factored);
  EXPECT_EQ(report.parameters, 40u * 8 + 70 * 32 + 32 + 32 * 32 + 32 + 32 * 2 + 2);

  const StateArrays arrays = written();
  EXPECT_THAT(names(arrays),
              UnorderedElementsAre("embedding.weight.left", "embedding.weight.right",
                                   "embedding.bias", "hidden1.weight.left", "hidden1.weight.right",
                                   "hidden1.bias", "hidden2.weight.left", "hidden2.weight.right",
                                   "hidden2.bias", "output.weight", "output.bias"));
  const auto product = [&](const std::string& name) {
    return array(arrays, name + ".weight.left").mm(array(arrays, name + ".weight.right"));
  };
  const Network one = network(run);
  const Batch test = all_of(*one.data.test);
  const auto loss = [&] {
    return one.task.loss(one.task.forward(test.inputs), test.targets).item<double>();
  };
  EXPECT_NEAR(loss(), report.trained.loss, 1e-5);
  auto weights = one.task.module->named_parameters();
  weights["embedding.weight"].copy_(product("embedding") + array(arrays, "embedding.bias"));
  for (const std::string name : {"hidden1", "hidden2"}) {
    weights[name + ".weight"].copy_(product(name));
    weights[name + ".bias"].copy_(array(arrays, name + ".bias"));
  }
  EXPECT_NEAR(loss(), report.by_outputs.loss, 1e-5);
  EXPECT_NE(report.by_outputs.loss, report.trained.loss);
  EXPECT_NE(report.by_weights.loss, report.by_outputs.loss);
  const auto [wrong, predictions] = one.task.errors(one.task.forward(test.inputs), test.targets);
  EXPECT_DOUBLE_EQ(static_cast<double>(wrong) / static_cast<double>(predictions),
                   report.by_outputs.error);
}

// What a rank leaves out of the outputs of samples that were looked at, measured with the factors
// of the file.
TEST_F(FactoredRun, TheShareIsThatOfTheOutputsVariance) {
  const torch::NoGradGuard no_grad;
  const std::string run = train();
  FactorRequest wanted = request(run);
  wanted.keep = 0.7;
  wanted.calibration = 100;
  const FactorReport report = factor_model(wanted);
  EXPECT_EQ(report.calibration, 100u);
  const StateArrays arrays = written();
  const Network one = network(run);
  std::vector<uint64_t> third;  // of 300
  for (uint64_t i = 0; i < 100; ++i) third.push_back(3 * i);
  torch::Tensor x = one.data.train->fetch(third, {}).inputs;
  auto weights = one.task.module->named_parameters();
  for (const size_t place : {1u, 2u}) {
    const FactoredLayer& layer = report.layers[place];
    const std::string& name = layer.name;
    x = one.task.layers[place - 1].forward(x);
    const torch::Tensor y = x.mm(weights[name + ".weight"].t()) + weights[name + ".bias"];
    ASSERT_GT(layer.rank, 0u) << name;
    EXPECT_GE(layer.share, 0.7);
    EXPECT_EQ(array(arrays, name + ".weight.left").size(1), static_cast<int64_t>(layer.rank));
    const torch::Tensor thin = x.mm(array(arrays, name + ".weight.right").t())
                                   .mm(array(arrays, name + ".weight.left").t()) +
                               array(arrays, name + ".bias");
    const double missing =
        ((y - thin).square().sum() / (y - y.mean(0)).square().sum()).item<double>();
    EXPECT_NEAR(1 - missing, layer.share, 1e-4) << name;
  }
}

TEST_F(FactoredRun, WhatWouldNotBecomeSmallerIsLeftAsItIs) {
  const torch::NoGradGuard no_grad;
  const std::string run = train();
  FactorRequest wanted = request(run);
  wanted.keep = 1;
  wanted.calibration = 0;
  const FactorReport all = factor_model(wanted);
  EXPECT_EQ(all.calibration, kTraining);
  EXPECT_EQ(all.factored, all.parameters);
  EXPECT_EQ(all.by_outputs.loss, all.trained.loss);
  EXPECT_EQ(all.by_weights.loss, all.trained.loss);
  for (const FactoredLayer& layer : all.layers) EXPECT_EQ(layer.rank, 0u) << layer.name;
  EXPECT_TRUE(array(written(), "hidden1.weight")
                  .equal(network(run).task.module->named_parameters()["hidden1.weight"]));
  wanted.rank = 1 << 20;
  EXPECT_EQ(factor_model(wanted).factored, all.parameters);
}

// Two outputs vary in one direction. A further one would be arbitrary.
TEST_F(FactoredRun, RanksEndWhereTheSamplesDo) {
  const std::string run = train();
  FactorRequest wanted = request(run);
  wanted.rank = 8;
  for (const uint64_t samples : {2, 5}) {
    wanted.calibration = samples;
    const FactorReport report = factor_model(wanted);
    for (const FactoredLayer& layer : report.layers) {
      if (layer.embedding) continue;  // which has several outputs of a sample
      EXPECT_LE(layer.determined, samples - 1) << layer.name;
      EXPECT_LE(layer.rank, layer.determined) << layer.name;
    }
    EXPECT_EQ(report.layers[1].rank, samples - 1);
    EXPECT_EQ(report.layers[1].directions, 32u);
    EXPECT_EQ(report.layers[3].rank,
              0u);  // rank 8 would not be smaller, and fewer samples are no reason
  }
  wanted.calibration = 1;
  const FactorReport one = factor_model(wanted);
  EXPECT_EQ(one.layers[1].determined, 0u);
  EXPECT_EQ(one.layers[1].rank, 0u);
  wanted.calibration = 0;
  EXPECT_EQ(factor_model(wanted).layers[1].rank, 8u);
}

TEST_F(FactoredRun, MoreRanksKeepMore) {
  const std::string run = train();
  FactorRequest wanted = request(run);
  double before = 0;
  uint64_t size = 0;
  for (const uint64_t rank : {1, 2, 4, 8, 12}) {
    wanted.rank = rank;
    const FactorReport report = factor_model(wanted);
    EXPECT_GT(report.layers[1].share, before);
    EXPECT_GT(report.factored, size);
    before = report.layers[1].share;
    size = report.factored;
  }
  EXPECT_GT(before, 0.5);
}

TEST_F(FactoredRun, NetworksOnTextsHaveTwoLayersThatAreFactored) {
  const Recipe recipe = toy_recipe({{"model.name", "char-lstm"},
                                    {"model.hidden", "12"},
                                    {"model.embedding", "16"},
                                    {"model.layers", "1"},
                                    {"data.name", "shakespeare"},
                                    {"data.train_samples", "40"},
                                    {"data.test_samples", "10"},
                                    {"train.max_steps", "1"}});
  RunPlaces places;
  places.out = (folder_ / "text").string();
  run_local(1, [&](Group& group) { train_recipe(recipe, places, group, {}); });
  FactorRequest wanted = request(places.out);
  wanted.data = "";
  wanted.rank = 2;
  const FactorReport report = factor_model(wanted);
  ASSERT_EQ(report.layers.size(), 2u);
  EXPECT_EQ(report.layers[0].name, "embedding");
  EXPECT_EQ(report.layers[0].rank, 2u);
  EXPECT_EQ(report.layers[1].name, "output");
  EXPECT_EQ(report.layers[1].rank, 2u);
  EXPECT_THAT(names(written()),
              testing::IsSupersetOf({"lstm1.weight_ih_l0", "output.weight.left"}));
}

TEST_F(FactoredRun, MistakesAreNamed) {
  const std::string run = train();
  const auto expect = [&](ErrorCode code, const std::string& words, auto change) {
    FactorRequest wanted = request(run);
    change(wanted);
    expect_error([&] { factor_model(wanted); }, code, words);
  };
  for (const double keep : {0.0, -0.5, 1.5})
    expect(ErrorCode::kBadOption, "must be a share above 0",
           [&](FactorRequest& wanted) { wanted.keep = keep; });
  expect(ErrorCode::kIo, "nowhere: is not there",
         [](FactorRequest& wanted) { wanted.run = "nowhere"; });
  expect(ErrorCode::kBadOption, "would be read in the place of the run's checkpoints",
         [&](FactorRequest& wanted) { wanted.out = run + "/model.safetensors"; });
  expect(ErrorCode::kIo, "no/such/file",
         [&](FactorRequest& wanted) { wanted.out = (folder_ / "no/such/file").string(); });
  fs::remove(folder_ / "adult/adult-test.csv");
  expect(ErrorCode::kIo, "no adult-test.csv", [](FactorRequest&) {});
}

}  // namespace
}  // namespace thinwire
