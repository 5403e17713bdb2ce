// Tests of influence: products of gradients, sums over networks, and whole runs, each against
// gradients that libtorch's autograd computes in double.
// SPDX-License-Identifier: Apache-2.0
#include "train/last_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "thinwire/influence.h"
#include "train/checkpoint.h"
#include "train/data/data_sets.h"
#include "train/data/data_test_files.h"
#include "train/influence_sums.h"
#include "train/models/models.h"
#include "train/recipe_parts.h"
#include "train/safetensors.h"
#include "train/start_weights.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The gradient of one sample's loss by output.weight and output.bias, as one vector. The network
// computes in double.
torch::Tensor gradient_by_autograd(const Task& task, const torch::Tensor& input, int64_t label) {
  std::vector<torch::Tensor> of;
  for (const auto& item : task.module->named_parameters())
    if (item.key().starts_with("output.")) of.push_back(item.value());
  task.module->eval();
  const torch::Tensor outputs = task.forward(input.unsqueeze(0).to(torch::kFloat64));
  const torch::Tensor loss =
      torch::nn::functional::cross_entropy(outputs, torch::tensor({label}, torch::kInt64));
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& part : torch::autograd::grad({loss}, of))
    flat.push_back(part.flatten());
  return torch::cat(flat);
}

// A row per sample.
torch::Tensor gradients_by_autograd(const Task& task, const Batch& batch) {
  std::vector<torch::Tensor> rows;
  for (int64_t i = 0; i < batch.targets.size(0); ++i)
    rows.push_back(gradient_by_autograd(task, batch.inputs[i], batch.targets[i].item<int64_t>()));
  return torch::stack(rows);
}

Task in_double(Task task) {
  task.module->to(torch::kFloat64);
  return task;
}

// As a share of the largest value.
double error_of(const torch::Tensor& values, const torch::Tensor& truth) {
  return ((values - truth).abs().max() / truth.abs().max()).item<double>();
}

struct ModelCase {
  ModelOptions options;
  SampleShape shape;
};

class LastLayerOf : public testing::TestWithParam<ModelCase> {};

TEST_P(LastLayerOf, HasTheProductsOfGradientsByAutograd) {
  const auto& [options, shape] = GetParam();
  const Task task = in_double(make_model(options, shape));
  std::vector<int64_t> sizes = {5};
  sizes.insert(sizes.end(), shape.input.begin(), shape.input.end());
  torch::manual_seed(1);
  const Batch batch{torch::randn(sizes, torch::kFloat64),
                    torch::tensor({0, 3, 3, 9, 1}, torch::kInt64)};
  const torch::Tensor before = task.forward(batch.inputs);
  GradientFactors factors;
  {
    const LastLayer layer(task);
    factors = layer.factors(batch);
    EXPECT_FALSE(task.module->is_training());
  }
  EXPECT_TRUE(task.module->is_training());
  task.module->eval();
  const torch::Tensor gradients = gradients_by_autograd(task, batch);
  EXPECT_LT(error_of(gradient_products(factors, factors), gradients.mm(gradients.t())), 1e-12);
  EXPECT_LT(error_of(gradient_squares(factors), gradients.square().sum(1)), 1e-12);
  EXPECT_TRUE(factors.predicted.equal(task.forward(batch.inputs).argmax(1)));
  task.module->train();
  EXPECT_TRUE(task.forward(batch.inputs).equal(before)) << "its weights are not back";
}

const SampleShape kGrey{.input = {1, 28, 28}, .classes = 10};
const SampleShape kColour{.input = {3, 32, 32}, .classes = 10};

INSTANTIATE_TEST_SUITE_P(Networks, LastLayerOf,
                         testing::Values(ModelCase{{.name = "mlp", .hidden = 16}, kGrey},
                                         ModelCase{{.name = "cnn-mnist", .hidden = 16}, kGrey},
                                         ModelCase{{.name = "cnn-cifar", .hidden = 16}, kColour},
                                         ModelCase{{.name = "cnn7", .width = 4, .hidden = 16},
                                                   kColour},
                                         ModelCase{{.name = "resnet8", .width = 4}, kColour},
                                         ModelCase{{.name = "resnet20"}, kColour},
                                         ModelCase{{.name = "resnet18", .hidden = 4}, kColour},
                                         ModelCase{{.name = "dnn-speech", .hidden = 16},
                                                   {.input = {64, 40}, .classes = 10}}),
                         [](const auto& one) {
                           std::string name = one.param.options.name;
                           std::erase(name, '-');
                           return name;
                         });

TEST(LastLayer, RefusesNetworksWithoutOne) {
  Task conv;
  conv.module = torch::nn::Conv2d(1, 2, 3).ptr();
  conv.forward = [](const torch::Tensor& x) { return x; };
  expect_error([&] { LastLayer layer(conv); }, ErrorCode::kUnsupported, "no linear layer");
  const auto net = std::make_shared<ToyNet>();
  Task two = task_of_net(net);
  two.forward = [net](const torch::Tensor& x) { return net->first(x); };
  const LastLayer layer(two);
  const ToyData data(4);
  const std::vector<uint64_t> ids = {0, 1};
  expect_error([&] { layer.factors(data.fetch(ids, {})); }, ErrorCode::kUnsupported,
               "not those of its last linear layer");
}

// Two networks at rates of their own, and blocks that do not divide the numbers of samples.
TEST(InfluenceSums, AddProductsOfAllNetworksTimesTheirRates) {
  const ToyData training(23), others(9, 1);
  const std::vector<uint64_t> of = {4, 0, 8, 2, 5};
  const auto net = std::make_shared<ToyNet>();
  net->to(torch::kFloat64);
  Task task = task_of_net(net);
  task.forward = [net](const torch::Tensor& x) { return net->forward(x.to(torch::kFloat64)); };
  std::vector<uint64_t> all(23);
  std::iota(all.begin(), all.end(), uint64_t{0});
  const Batch rows = others.fetch(of, {}), columns = training.fetch(all, {});

  InfluenceSums sums(training, others, of, 4);
  torch::Tensor products = torch::zeros({5, 23}, torch::kFloat64);
  torch::Tensor self = torch::zeros({23}, torch::kFloat64),
                of_self = torch::zeros({5}, torch::kFloat64);
  torch::Tensor outputs;
  for (const double rate : {0.5, 0.02}) {
    {
      const torch::NoGradGuard no_grad;
      for (const torch::Tensor& weight : net->parameters()) weight.mul_(1.5).add_(0.01);
    }
    sums.add(task, rate);
    const torch::Tensor z = gradients_by_autograd(task, rows);
    const torch::Tensor z2 = gradients_by_autograd(task, columns);
    products += rate * z.mm(z2.t());
    of_self += rate * z.square().sum(1);
    self += rate * z2.square().sum(1);
    outputs = torch::softmax(task.forward(columns.inputs), 1);
  }
  EXPECT_LT(error_of(sums.products(), products), 1e-12);
  EXPECT_LT(error_of(sums.training().self, self), 1e-12);
  EXPECT_LT(error_of(sums.of().self, of_self), 1e-12);
  EXPECT_TRUE(sums.training().labels.equal(columns.targets));
  EXPECT_TRUE(sums.of().labels.equal(rows.targets));
  EXPECT_TRUE(sums.training().predicted.equal(outputs.argmax(1)));
  EXPECT_LT(error_of(sums.training().probability,
                     outputs.gather(1, columns.targets.unsqueeze(1)).squeeze(1)),
            1e-12);
}

TEST(InfluenceSums, RefusesNetworksThatAreNotFinite) {
  const ToyData training(5);
  const auto net = std::make_shared<ToyNet>();
  InfluenceSums sums(training, training, {0}, 4);
  const torch::NoGradGuard no_grad;
  net->second->bias[0] = std::numeric_limits<float>::infinity();
  expect_error([&] { sums.add(task_of_net(net), 1); }, ErrorCode::kNonFinite, "not finite");
}

// Runs on small images in the place of a data set's.
class InfluenceOfRun : public FolderTest {
 protected:
  static constexpr uint32_t kTraining = 120, kHeldOut = 40, kTest = 30, kSide = 6;

  InfluenceOfRun() {
    write_part("train", kTraining + kHeldOut, 0);
    write_part("t10k", kTest, 1);
  }

  // Each class has a pattern of its own below noise.
  void write_part(const std::string& part, uint32_t count, uint32_t stream) {
    const RandomKey key{.seed = 9, .use = RandomUse::kTest, .step = 0, .stream = stream};
    std::string images =
        big_endian(0x803) + big_endian(count) + big_endian(kSide) + big_endian(kSide);
    for (uint32_t i = 0; i < count * kSide * kSide; ++i) {
      const uint32_t label = i / (kSide * kSide) % 10;
      const uint32_t pattern = random_word({.seed = label}, i % (kSide * kSide)) % 128;
      images += static_cast<char>(pattern + random_word(key, i) % 128);
    }
    write("fashion-mnist/" + part + "-images-idx3-ubyte", images);
    write("fashion-mnist/" + part + "-labels-idx1-ubyte", idx_labels(count));
  }

  // Four epochs of six steps; the learning rate falls with the first step after the second
  // checkpoint.
  Recipe recipe_of(const Settings& more) {
    Settings all = {{"model.name", "mlp"},        {"model.hidden", "48"},
                    {"data.hold_out", "40"},      {"train.epochs", "4"},
                    {"checkpoint.keep", "9"},     {"schedule.name", "step"},
                    {"schedule.milestones", "2"}, {"optimizer.momentum", "0.5"}};
    all.insert(all.end(), more.begin(), more.end());
    return toy_recipe(all);
  }

  std::string train(const Settings& more = {}) {
    const Recipe recipe = recipe_of(more);
    const std::string out = (folder_ / "run").string();
    run_local(2, [&](Group& group) { train_recipe(recipe, places_of(out), group, {}); });
    return out;
  }

  RunPlaces places_of(const std::string& out) const {
    RunPlaces places;
    places.data = folder_.string();
    places.out = out;
    return places;
  }

  // From the lines of the steps, as the trainer wrote them: nothing is computed from the recipe.
  static std::map<uint64_t, double> rates_of(const std::string& run) {
    std::map<uint64_t, double> rates;
    std::ifstream file(fs::path(run) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("learning_rate"))
        rates[json.at("step").get<uint64_t>()] = json.at("learning_rate").get<double>();
    }
    return rates;
  }

  // All training samples on all test samples, and on themselves.
  std::pair<torch::Tensor, torch::Tensor> oracle(const std::string& run, const Settings& more,
                                                 const std::vector<uint64_t>& steps) {
    const Recipe recipe = recipe_of(more);
    const DataSplits data = make_data_set(data_request(recipe.options, folder_.string()));
    const auto all_of = [](const Dataset& set) {
      std::vector<uint64_t> ids(set.size());
      std::iota(ids.begin(), ids.end(), uint64_t{0});
      return set.fetch(ids, {});
    };
    torch::Tensor products = torch::zeros({kTest, kTraining}, torch::kFloat64);
    torch::Tensor self = torch::zeros({kTraining}, torch::kFloat64);
    const auto rates = rates_of(run);
    for (const fs::path& folder : list_checkpoints(run)) {
      const uint64_t step = std::stoull(folder.filename().string().substr(11));
      if (std::find(steps.begin(), steps.end(), step) == steps.end()) continue;
      Task task = make_model(model_options(recipe.options), data.shape);
      load_weights(*task.module, folder.string());
      task = in_double(task);
      const torch::Tensor rows = gradients_by_autograd(task, all_of(*data.test));
      const torch::Tensor columns = gradients_by_autograd(task, all_of(*data.train));
      products += rates.at(step) * rows.mm(columns.t());
      self += rates.at(step) * columns.square().sum(1);
    }
    return {products, self};
  }

  InfluenceRequest request(const std::string& run, std::vector<uint64_t> of) {
    InfluenceRequest wanted;
    wanted.run = run;
    wanted.data = folder_.string();
    wanted.of = std::move(of);
    return wanted;
  }

  // `values` is what the report's lists are to hold.
  static void expect_list(const std::vector<InfluenceSample>& list, const torch::Tensor& values,
                          double sign) {
    const double scale = values.abs().max().item<double>();
    const torch::Tensor sorted = std::get<0>((sign * values).sort(0, /*descending=*/true));
    ASSERT_FALSE(list.empty());
    for (size_t i = 0; i < list.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      EXPECT_NEAR(sign * list[i].influence, sorted[at].item<double>(), 1e-5 * scale) << i;
      EXPECT_NEAR(list[i].influence, values[static_cast<int64_t>(list[i].index)].item<double>(),
                  1e-5 * scale)
          << i;
    }
  }
};

TEST_F(InfluenceOfRun, IsThatOfGradientsByAutogradWithTheRatesOfTheSteps) {
  for (const std::string compress : {"exact", "quantised:tolerance=0.2,samples=0"}) {
    const Settings more = {{"checkpoint.compress", compress}};
    fs::remove_all(folder_ / "run");
    const std::string run = train(more);
    InfluenceRequest wanted = request(run, {7, 0, 29});
    const InfluenceReport report = measure_influence(wanted);
    std::vector<uint64_t> steps;
    std::vector<double> rates;
    for (const InfluenceCheckpoint& one : report.checkpoints) {
      steps.push_back(one.step);
      rates.push_back(one.learning_rate);
      EXPECT_EQ(one.small, compress != "exact") << one.name;
    }
    EXPECT_THAT(steps, ElementsAre(6, 12, 18, 24));
    EXPECT_THAT(rates, ElementsAre(0.1, 0.1, testing::DoubleEq(0.01), testing::DoubleEq(0.01)));
    const auto [products, self] = oracle(run, more, steps);
    for (size_t i = 0; i < wanted.of.size(); ++i) {
      const torch::Tensor row = products[static_cast<int64_t>(wanted.of[i])];
      EXPECT_EQ(report.of[i].sample.index, wanted.of[i]);
      EXPECT_EQ(report.of[i].sample.label, static_cast<int64_t>(wanted.of[i] % 10));
      EXPECT_EQ(report.of[i].proponents.size(), 10u);
      expect_list(report.of[i].proponents, row, 1);
      expect_list(report.of[i].opponents, row, -1);
    }
    expect_list(report.ranking, self, 1);
    EXPECT_FALSE(report.wrong.has_value());

    wanted.checkpoints = 2;
    const InfluenceReport two = measure_influence(wanted);
    ASSERT_EQ(two.checkpoints.size(), 2u);
    expect_list(two.of[0].proponents, oracle(run, more, {12, 24}).first[7], 1);
    // A checkpoint's folder stands for itself.
    wanted.checkpoints = 0;
    wanted.run = list_checkpoints(run)[1].string() + "/";
    expect_list(measure_influence(wanted).ranking, oracle(run, more, {12}).second, 1);
  }
}

TEST_F(InfluenceOfRun, KnowsPlantedLabelsAndWritesEveryValue) {
  const Settings more = {{"data.wrong_labels", "0.2"}, {"data.wrong_labels_seed", "4"}};
  const std::string run = train(more);
  InfluenceRequest wanted = request(run, {3, 50});
  wanted.part = SamplePart::kTraining;
  wanted.pictures = true;
  wanted.most = 200;
  wanted.scores = (folder_ / "scores.safetensors").string();
  const InfluenceReport report = measure_influence(wanted);
  ASSERT_EQ(report.ranking.size(), kTraining);
  uint64_t planted = 0, first_tenth = 0;
  for (size_t i = 0; i < report.ranking.size(); ++i) {
    const InfluenceSample& sample = report.ranking[i];
    const auto truth = static_cast<int64_t>(sample.index % 10);
    EXPECT_EQ(sample.true_label.has_value(), sample.label != truth) << sample.index;
    if (!sample.true_label) continue;
    EXPECT_EQ(*sample.true_label, truth);
    ++planted;
    if (i < kTraining / 10) ++first_tenth;
  }
  EXPECT_GT(planted, kTraining / 10);
  ASSERT_TRUE(report.wrong.has_value());
  EXPECT_EQ(report.wrong->planted, planted);
  EXPECT_DOUBLE_EQ(report.wrong->shares[1].found,
                   static_cast<double>(first_tenth) / static_cast<double>(planted));
  // Held-out and test samples keep their labels, and no sample is in a list of its own.
  for (const auto* list : {&report.of[0].proponents, &report.of[0].opponents})
    for (const InfluenceSample& sample : *list) EXPECT_NE(sample.index, 3u);
  wanted.part = SamplePart::kHeldOut;
  wanted.of = {1};
  wanted.scores.clear();
  EXPECT_EQ(measure_influence(wanted).of[0].sample.label, (kTraining + 1) % 10);

  std::ifstream images(folder_ / "fashion-mnist/train-images-idx3-ubyte", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(images)), {});
  const SamplePicture& picture = report.of[1].sample.picture;
  EXPECT_EQ(picture.width, kSide);
  EXPECT_EQ(std::string(picture.values.begin(), picture.values.end()),
            bytes.substr(16 + 50 * kSide * kSide, kSide * kSide));

  std::ifstream file(folder_ / "scores.safetensors", std::ios::binary);
  const std::string raw((std::istreambuf_iterator<char>(file)), {});
  const StateArrays arrays =
      read_safetensors("scores", std::as_bytes(std::span(raw))).value().arrays;
  std::vector<double> self(kTraining), influence(2 * kTraining);
  copy_state(arrays, "self", self).or_throw();
  for (const InfluenceSample& sample : report.ranking)
    EXPECT_EQ(self[sample.index], sample.influence);
  const auto rows = std::find_if(arrays.begin(), arrays.end(),
                                 [](const StateArray& a) { return a.name == "influence"; });
  ASSERT_NE(rows, arrays.end());
  EXPECT_THAT(rows->shape, ElementsAre(2, kTraining));
}

TEST_F(InfluenceOfRun, MistakesAreNamedWithTheChoices) {
  const std::string run = train();
  const auto expect = [&](ErrorCode code, const std::string& words, auto change) {
    InfluenceRequest wanted = request(run, {0});
    change(wanted);
    expect_error([&] { measure_influence(wanted); }, code, words);
  };
  expect(ErrorCode::kBadOption, "no test sample 30: the run has 30, 0 to 29",
         [](InfluenceRequest& wanted) {
           wanted.of = {3, 30};
         });
  expect(ErrorCode::kBadOption, "no held-out sample 40: the run has 40, 0 to 39",
         [](InfluenceRequest& wanted) {
           wanted.part = SamplePart::kHeldOut;
           wanted.of = {40};
         });
  expect(ErrorCode::kBadOption, "has 4 checkpoints and not 5",
         [](InfluenceRequest& wanted) { wanted.checkpoints = 5; });
  expect(ErrorCode::kIo, "nowhere: is not there",
         [](InfluenceRequest& wanted) { wanted.run = "nowhere"; });
  expect(ErrorCode::kIo, "holds several runs; name one of them: " + run,
         [&](InfluenceRequest& wanted) { wanted.run = folder_.string(); });
  expect(ErrorCode::kIo, "holds no checkpoint",
         [&](InfluenceRequest& wanted) { wanted.run = (folder_ / "fashion-mnist").string(); });
  const fs::path model = list_checkpoints(run)[1] / "model.safetensors";
  std::fstream file(model, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(400);
  file.put('\x55');
  file.close();
  expect(ErrorCode::kCorrupt, model.string() + ": damaged", [](InfluenceRequest&) {});
}

TEST_F(InfluenceOfRun, LanguageModelsAreRefused) {
  const Recipe recipe = toy_recipe({{"model.name", "char-lstm"},
                                    {"model.hidden", "8"},
                                    {"data.name", "shakespeare"},
                                    {"data.train_samples", "40"},
                                    {"data.test_samples", "10"},
                                    {"train.max_steps", "1"}});
  const std::string run = (folder_ / "text").string();
  run_local(1, [&](Group& group) { train_recipe(recipe, places_of(run), group, {}); });
  expect_error([&] { measure_influence(request(run, {0})); }, ErrorCode::kUnsupported,
               "model char-lstm predicts the tokens of shakespeare");
}

}  // namespace
}  // namespace thinwire
