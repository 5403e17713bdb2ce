// Tests of what memories owe at the end of a run, and of the step that sends it, against plain
// sums.
// SPDX-License-Identifier: Apache-2.0
#include "train/flush.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "thinwire/feedback.h"
#include "train/adam.h"
#include "train/checkpoint.h"
#include "train/describe.h"
#include "train/named_tensors.h"
#include "train/novograd.h"
#include "train/optimizer.h"
#include "train/safetensors.h"
#include "train/saved_model.h"
#include "train/temporary_folder.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<torch::Tensor>;

constexpr uint64_t kSteps = 10;

Settings with(Settings settings, const Settings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

// A direction for every parameter.
Tensors directions() {
  Tensors all;
  uint32_t stream = 300;
  for (const torch::Tensor& parameter : ToyNet().parameters()) {
    all.push_back(torch::empty_like(parameter).detach());
    const RandomKey key{.seed = 2, .use = RandomUse::kTest, .step = 0, .stream = stream++};
    for (int64_t i = 0; i < parameter.numel(); ++i)
      all.back().view(-1)[i] = random_normal(key, static_cast<uint64_t>(i));
  }
  return all;
}

// How much of its direction every gradient of these samples is.
double share_of(const torch::Tensor& targets) {
  return 0.5 + targets.to(torch::kFloat64).mean().item<double>();
}

// Gradients that depend on the samples and not on the weights, so that the weights after all of
// them arrived do not depend on when.
void make_linear(int /*rank*/, Task& task) {
  const auto module = task.module;
  task.loss = [module, along = directions()](const torch::Tensor& /*outputs*/,
                                             const torch::Tensor& targets) {
    torch::Tensor sum = torch::zeros({});
    const Tensors parameters = module->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) sum = sum + (parameters[i] * along[i]).sum();
    return sum * share_of(targets);
  };
}

ToyOptions linear(const Settings& settings, const std::string& flush) {
  return {.settings = with(settings, {{"exchange.flush", flush}, {"train.evaluate_every", "0"}}),
          .change = make_linear};
}

// The weights after the plain sum of all steps, each with this share of the velocity before it.
Tensors plain_sum(double momentum) {
  Tensors weights;
  for (const torch::Tensor& parameter : ToyNet().parameters())
    weights.push_back(parameter.detach().clone());
  const Tensors along = directions();
  const ToyData data(90);
  double velocity = 0;
  for (uint64_t step = 0; step < kSteps; ++step) {
    const auto order =
        random_permutation({.seed = 3, .use = RandomUse::kShuffle, .step = step / 5}, 90);
    const size_t begin = step % 5 * 20, size = std::min<size_t>(20, 90 - begin);
    const Batch batch = data.fetch(std::span(order).subspan(begin, size), {});
    velocity = momentum * velocity + share_of(batch.targets);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.1 * velocity * along[i];
  }
  return weights;
}

struct Case {
  const char* name;
  int ranks;
  Settings settings;
  double momentum = 0;
};

std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }

const Case kCases[] = {
    {"topk", 3, {{"exchange.codec", "topk:density=0.1"}}},
    {"sidco", 2, {{"exchange.codec", "sidco:density=0.05"}}},
    {"adacomp", 2, {{"exchange.codec", "adacomp"}}},
    {"global", 2, {{"exchange.codec", "topk:density=0.1"}, {"exchange.grouping", "global"}}},
    {"model", 2, {{"exchange.codec", "dgc:density=0.05"}, {"exchange.grouping", "model"}}},
    {"oneRank", 1, {{"exchange.codec", "topk:density=0.1"}}},
    {"lowPassOfAll",
     2,
     {{"exchange.codec", "topk:density=0.1"}, {"exchange.feedback", "lowpass:beta=1"}}},
    {"owners",
     3,
     {{"exchange.codec", "int4"},
      {"exchange.feedback", "residual"},
      {"exchange.method", "scatter-reduce"}}},
    {"sparseReduce",
     3,
     {{"exchange.codec", "topk:density=0.1,values=int8"}, {"exchange.method", "sparse-reduce"}}},
    {"lowRank", 2, {{"exchange.codec", "powersgd"}}},
    {"schedule", 2, {{"exchange.codec", "fp32 | 1: topk:density=0.05"}}},
    {"levels", 4, {{"exchange.codec", "topk:density=0.1"}, {"exchange.inside", "2"}}},
    {"rules",
     2,
     {{"exchange.codec", "topk:density=0.1"},
      {"exchange.rules",
       "{first.*} onebit {second.*} dgc:density=0.05 {grouping} model {output.bias} fp32"}}},
    {"momentum",
     3,
     {{"exchange.codec", "topk:density=0.1"},
      {"exchange.feedback", "dgc:mask=false"},
      {"optimizer.momentum", "0.9"}},
     0.9},
    {"momentumOfRules",
     2,
     {{"exchange.codec", "topk:density=0.1"},
      {"exchange.feedback", "dgc:mask=false"},
      {"exchange.rules", "{first.*} sidco:density=0.05 {feedback} dgc:mask=false"},
      {"optimizer.momentum", "0.9"}},
     0.9},
};

class Flush : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cases, Flush, ::testing::ValuesIn(kCases),
                         [](const auto& row) { return row.param.name; });

TEST_P(Flush, EndsWhereThePlainSumDoes) {
  const Case& one = GetParam();
  const Tensors want = plain_sum(one.momentum);
  const auto off = run_toy(one.ranks, linear(one.settings, "off"));
  EXPECT_GT(distance(off[0].weights, want), 0.01);
  EXPECT_FALSE(off[0].summary.flush);

  const auto applied = run_toy(one.ranks, linear(one.settings, "apply"));
  EXPECT_LT(distance(applied[0].weights, want), 2e-5);
  for (const ToyResult& result : applied) {
    EXPECT_TRUE(same_bits(result.weights, applied[0].weights));
    ASSERT_TRUE(result.summary.flush);
    EXPECT_TRUE(result.summary.flush->applied);
    EXPECT_EQ(result.summary.flush->owed_norm, applied[0].summary.flush->owed_norm);
  }
  EXPECT_EQ(applied[0].tests.size(), 2u);
  EXPECT_EQ(applied[0].summary.final_test_loss, applied[0].summary.flush->after.loss);

  // What is owed is what the weights moved by.
  double square = 0;
  for (size_t i = 0; i < want.size(); ++i)
    square += (off[0].weights[i] - want[i]).square().sum().item<double>();
  EXPECT_NEAR(applied[0].summary.flush->owed_norm * 0.1, std::sqrt(square), 1e-4);
}

TEST_P(Flush, MeasuringChangesNothing) {
  const Case& one = GetParam();
  const auto off = run_toy(one.ranks, linear(one.settings, "off"));
  const auto measured = run_toy(one.ranks, linear(one.settings, "measure"));
  const auto applied = run_toy(one.ranks, linear(one.settings, "apply"));
  EXPECT_TRUE(same_bits(measured[0].weights, off[0].weights));
  EXPECT_EQ(measured[0].summary.final_test_loss, off[0].summary.final_test_loss);
  EXPECT_EQ(measured[0].tests.size(), 1u);
  const FlushReport& report = measured[0].summary.flush.value();
  const FlushReport& same = applied[0].summary.flush.value();
  EXPECT_FALSE(report.applied);
  EXPECT_EQ(report.before.loss, off[0].summary.final_test_loss);
  EXPECT_EQ(report.after.loss, same.after.loss);
  EXPECT_NE(report.after.loss, report.before.loss);
  EXPECT_EQ(report.before.error, same.before.error);
  EXPECT_EQ(report.owed_norm, same.owed_norm);
}

const Settings kMomentum = {{"exchange.codec", "topk:density=0.05"},
                            {"optimizer.momentum", "0.9"},
                            {"schedule.name", "cosine"},
                            {"schedule.floor", "0.3"}};

// Velocities that wait are not owed, with a mask or without: what is owed are the saved residuals.
class FlushOfMomentum : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Memories, FlushOfMomentum, ::testing::Values("dgc", "ahead"),
                         [](const auto& row) { return std::string(row.param); });

TEST_P(FlushOfMomentum, IsTheRateTimesTheMeanOfSavedResiduals) {
  const TemporaryFolder folder;
  ToyOptions toy{
      .settings = with(kMomentum, {{"exchange.feedback", GetParam()}, {"exchange.flush", "apply"}}),
      .norm = true};
  toy.places.out = (folder / "run").string();
  const auto applied = run_toy(2, toy);
  toy.settings.back().second = "off";
  toy.places.out.clear();
  const auto off = run_toy(2, toy);

  Tensors want = off[0].weights;
  const auto groups = make_local_groups(1);
  const Checkpoint saved = load_checkpoint(*groups[0], folder / "run");
  const auto parameters = trainable_parameters(ToyNet(0, true));
  const double rate = applied[0].summary.flush->learning_rate;
  EXPECT_NEAR(rate, 0.1 * (0.3 + 0.7 * (1 + std::cos(M_PI * 0.9)) / 2), 1e-12);
  double square = 0, moved = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto count = static_cast<size_t>(parameters[i].tensor.numel());
    torch::Tensor owed = torch::zeros({static_cast<int64_t>(count)});
    for (const StateArrays& rank : saved.ranks) {
      std::vector<float> residual(count);
      const std::string name = parameters[i].spec.name + "/feedback/residual";
      if (copy_state(rank, name, residual))
        owed += torch::tensor(residual) / static_cast<double>(saved.ranks.size());
    }
    want[i] = want[i] - rate * owed.view_as(want[i]);
    square += owed.square().sum().item<double>();
    moved = std::max(moved, owed.abs().max().item<double>());
  }
  EXPECT_GT(moved, 0.01);
  EXPECT_LT(distance(applied[0].weights, want), 1e-6);
  EXPECT_NEAR(applied[0].summary.flush->owed_norm, std::sqrt(square), 1e-5);
}

// The checkpoint holds the run before it: it can go on, or come to the same end again.
TEST(FlushStep, ComesToTheSameEndAfterAResume) {
  const TemporaryFolder folder;
  ToyOptions toy{.settings = with(kMomentum, {{"exchange.flush", "apply"}}), .norm = true};
  const auto whole = run_toy(2, toy);
  for (const uint64_t stop : {uint64_t{4}, UINT64_MAX}) {  // in the middle, or at the end
    ToyOptions first = toy;
    first.places.out = (folder / std::to_string(stop)).string();
    first.stop_after = stop;
    const auto stopped = run_toy(2, first);
    EXPECT_EQ(stopped[0].summary.flush.has_value(), stop == UINT64_MAX);
    const std::filesystem::path weights =
        std::filesystem::path(first.places.out) / "model.safetensors";
    EXPECT_EQ(std::filesystem::exists(weights), stop == UINT64_MAX);
    ToyOptions second = toy;
    second.places.out = second.places.resume = first.places.out;
    const auto resumed = run_toy(2, second);
    EXPECT_TRUE(same_bits(resumed[0].weights, whole[0].weights));
    const FlushReport& got = resumed[0].summary.flush.value();
    const FlushReport& want = whole[0].summary.flush.value();
    EXPECT_EQ(got.owed_norm, want.owed_norm);
    EXPECT_EQ(got.gradient_norm, want.gradient_norm);
    EXPECT_EQ(got.delivered_norm, want.delivered_norm);
    EXPECT_EQ(got.before.loss, want.before.loss);
    EXPECT_EQ(got.after.loss, want.after.loss);
    EXPECT_EQ(resumed[0].summary.best_test_error, whole[0].summary.best_test_error);
    EXPECT_TRUE(std::filesystem::exists(weights));
  }
  // A longer run that began as this one.
  ToyOptions longer = toy;
  longer.settings = with(kMomentum, {{"train.epochs", "3"}, {"schedule.name", "constant"}});
  ToyOptions begun = longer;
  std::erase_if(begun.settings, [](const auto& row) { return row.first == "train.epochs"; });
  begun.settings.emplace_back("exchange.flush", "apply");
  begun.places.out = (folder / "begun").string();
  run_toy(2, begun);
  ToyOptions on = longer;
  on.places.out = on.places.resume = begun.places.out;
  EXPECT_TRUE(same_bits(run_toy(2, on)[0].weights, run_toy(2, longer)[0].weights));
  EXPECT_FALSE(std::filesystem::exists(folder / "begun" / "model.safetensors"));
}

// A file that no run wrote stays where a run begins in its folder.
TEST(FlushStep, ItsWeightsDoNotHideTheNextRun) {
  const TemporaryFolder folder;
  ToyOptions toy = linear({{"exchange.codec", "topk:density=0.1"}}, "apply");
  toy.places.out = (folder / "run").string();
  run_toy(1, toy);
  EXPECT_EQ(read_saved_model(folder / "run").from, folder / "run/model.safetensors");
  toy.settings = with(toy.settings, {{"exchange.flush", "off"}});
  run_toy(1, toy);
  EXPECT_FALSE(std::filesystem::exists(folder / "run/model.safetensors"));
  EXPECT_THAT(read_saved_model(folder / "run").from, HasSubstr("checkpoint-"));

  std::filesystem::create_directory(folder / "fresh");
  std::ofstream(folder / "fresh/model.safetensors") << "of the user";
  toy.places.out = (folder / "fresh").string();
  run_toy(1, toy);
  EXPECT_EQ(std::filesystem::file_size(folder / "fresh/model.safetensors"), 11u);
}

TEST(FlushStep, WritesWeightsAndFigures) {
  const TemporaryFolder folder;
  ToyOptions toy = linear({{"exchange.codec", "topk:density=0.1"}}, "apply");
  toy.held_out = 31;
  toy.places.out = (folder / "run").string();
  const auto applied = run_toy(2, toy);
  const FlushReport& report = applied[0].summary.flush.value();

  std::ifstream file(folder / "run" / "model.safetensors", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const TensorFile weights = read_safetensors("model", std::as_bytes(std::span(text))).value();
  std::vector<float> first(128);
  copy_state(weights.arrays, "first.weight", first).or_throw();
  EXPECT_TRUE(torch::tensor(first).view({16, 8}).equal(applied[0].weights[0]));

  std::ifstream results(folder / "run" / "summary.json");
  const auto flush = nlohmann::json::parse(results).at("flush");
  EXPECT_EQ(flush.at("applied"), true);
  EXPECT_EQ(flush.at("owed_norm"), report.owed_norm);
  EXPECT_EQ(flush.at("test_error_before"), report.before.error);
  EXPECT_EQ(flush.at("test_loss_after"), report.after.loss);
  EXPECT_EQ(flush.at("hold_out_error_after"), report.after.hold_out_error.value());

  // The last batch of the last epoch is 10 samples; what arrived of it is a part.
  const auto order = random_permutation({.seed = 3, .use = RandomUse::kShuffle, .step = 1}, 90);
  const Batch last = ToyData(90).fetch(std::span(order).subspan(80, 10), {});
  double square = 0;
  for (const torch::Tensor& along : directions()) square += along.square().sum().item<double>();
  EXPECT_NEAR(report.gradient_norm, share_of(last.targets) * std::sqrt(square), 1e-4);
  EXPECT_EQ(flush.at("gradient_norm"), report.gradient_norm);
  EXPECT_GT(report.delivered_norm, 0);
  EXPECT_EQ(flush.at("delivered_norm"), report.delivered_norm);
}

// With every memory that is told to owe something, and clipped as means are.
TEST(FlushStep, IsTakenWithEveryMemoryThatOwes) {
  size_t owing = 0;
  for (const FeedbackEntry* entry : list_feedbacks()) {
    if (!entry->owes) continue;
    ++owing;
    const std::string memory(entry->name);
    const auto results =
        run_toy(2, {.settings = {{"exchange.codec", "topk:density=0.1"},
                                 {"exchange.feedback", memory},
                                 {"optimizer.momentum", entry->momentum ? "0.9" : "0"},
                                 {"exchange.flush", "apply"}}});
    EXPECT_GT(results[0].summary.flush->owed_norm, 0) << memory;
    EXPECT_TRUE(same_bits(results[0].weights, results[1].weights)) << memory;
  }
  EXPECT_EQ(owing, 5u);
  const auto mixed = run_toy(2, {.settings = {{"exchange.codec", "scalecom:density=0.1"},
                                              {"exchange.rules", "{first.*} topk:density=0.1"},
                                              {"exchange.flush", "measure"}}});
  EXPECT_GT(mixed[0].summary.flush->owed_norm, 0);

  const Settings clipped = {{"exchange.codec", "topk:density=0.1"}, {"clip.norm", "0.05"}};
  const auto off = run_toy(2, linear(clipped, "off"));
  const auto applied = run_toy(2, linear(clipped, "apply"));
  double square = 0;
  for (size_t i = 0; i < off[0].weights.size(); ++i)
    square += (off[0].weights[i] - applied[0].weights[i]).square().sum().item<double>();
  EXPECT_NEAR(std::sqrt(square), 0.1 * 0.05, 1e-6);
  EXPECT_GT(applied[0].summary.flush->owed_norm, 1);

  // Each of two workers clips its own gradient, and all have the same direction.
  const auto own = run_toy(2, linear(with(clipped, {{"clip.of", "own"}}), "measure"));
  EXPECT_NEAR(own[0].summary.flush->gradient_norm, 0.05 / std::sqrt(2.0), 1e-6);
}

// By the optimiser's own scale, with its moments as they are.
TEST(FlushStep, IsScaledAsTheOptimiserScalesMeans) {
  const auto parameter = [] { return torch::tensor({1.0f, 2.0f}).requires_grad_(true); };
  const auto step_twice = [](torch::optim::Optimizer& optimizer, torch::Tensor& weights) {
    for (const float first : {3.0f, 0.5f}) {
      weights.mutable_grad() = torch::tensor({first, -1.0f});
      optimizer.step();
    }
    weights.mutable_grad() = torch::tensor({2.0f, 4.0f});
  };
  const auto moved = [](torch::optim::Optimizer& optimizer, torch::Tensor& weights) {
    const torch::Tensor before = weights.detach().clone();
    step_without_momentum(optimizer, 0.5);
    return torch::Tensor(before - weights.detach());
  };
  torch::Tensor weights = parameter();
  torch::optim::SGD sgd({weights}, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.3));
  step_twice(sgd, weights);
  EXPECT_TRUE(torch::allclose(moved(sgd, weights), torch::tensor({1.0f, 2.0f}), 0, 1e-6));

  torch::Tensor others = parameter(), idle = parameter();
  const torch::optim::AdamOptions options =
      torch::optim::AdamOptions(0.1).betas({0.9, 0.8}).eps(0.25);
  Adam adam({others, idle}, options);
  step_twice(adam, others);
  idle.mutable_grad() = torch::tensor({1.0f, 1.0f});  // never stepped: it has no scale
  const auto want = [](double first, double second, double gradient) {
    const double square = (0.8 * 0.2 * first * first + 0.2 * second * second) / (1 - 0.64);
    return static_cast<float>(0.5 * gradient / (std::sqrt(square) + 0.25));
  };
  EXPECT_TRUE(torch::allclose(moved(adam, others),
                              torch::tensor({want(3, 0.5, 2), want(-1, -1, 4)}), 0, 1e-5));
  EXPECT_TRUE(idle.detach().equal(torch::tensor({1.0f, 2.0f})));

  torch::Tensor normed = parameter();
  NovoGrad novograd({torch::optim::OptimizerParamGroup(Tensors{normed})}, options);
  step_twice(novograd, normed);
  const double norm = std::sqrt(0.8 * 10 + 0.2 * 1.25) + 0.25;
  EXPECT_TRUE(torch::allclose(
      moved(novograd, normed),
      torch::tensor({static_cast<float>(1 / norm), static_cast<float>(2 / norm)}), 0, 1e-5));
}

std::string refused(const Settings& settings) {
  const Recipe recipe = toy_recipe(with(settings, {{"exchange.flush", "measure"}}));
  for (const RecipeFault& fault : find_faults(recipe.options))
    if (fault.key == "exchange.flush") return fault.status.message();
  return "";
}

TEST(FlushChecks, RefuseRunsThatOweNothing) {
  for (const char* memory : {"none", "ef21", "velocity", "momentum"})
    EXPECT_THAT(refused({{"exchange.codec", "topk"}, {"exchange.feedback", memory}}),
                ::testing::AllOf(HasSubstr("nothing is owed at the end of a run with memory " +
                                           std::string(memory)),
                                 HasSubstr("memories that owe are residual, ")));
  EXPECT_THAT(refused({}), HasSubstr("with memory none;"));
  EXPECT_EQ(refused({{"exchange.rules", "{first.*} topk"}}), "");
  EXPECT_THAT(refused({{"exchange.codec", "topk"}, {"exchange.feedback", "efmixed"}}),
              HasSubstr("efmixed sends a share of what it owes in every step"));
  EXPECT_THAT(refused({{"exchange.codec", "topk"}, {"sync.method", "average:tau=2"}}),
              HasSubstr("workers that step by themselves"));
  EXPECT_THAT(refused({{"exchange.codec", "topk"}, {"pipeline.stages", "2"}}),
              HasSubstr("is not for pipelines"));
  EXPECT_THAT(refused({{"exchange.codec", "topk"},
                       {"exchange.grouping", "model"},
                       {"exchange.rules", "{first.*} sidco {grouping} model"}}),
              HasSubstr("use grouping tensor"));
  EXPECT_EQ(refused({{"exchange.codec", "no-such"}}), "");  // its own mistake is said once
  EXPECT_THROW(run_toy(1, {.settings = {{"exchange.flush", "apply"}}}), Error);
}

}  // namespace
}  // namespace thinwire
