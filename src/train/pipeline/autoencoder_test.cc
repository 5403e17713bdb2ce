// Tests of encoders and decoders at cuts: first weights, gradients, bytes, replicas, refusals.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/autoencoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "train/named_tensors.h"
#include "train/pipeline/pipeline_testing.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

using Weights = std::map<std::string, torch::Tensor>;

// Three stages of the network 8 - 16 - 16 - 16 - 3.
Settings encoded(const std::string& autoencoder, const Settings& more = {}) {
  return with({{"pipeline.stages", "3"},
               {"pipeline.cut", "first, third"},
               {"pipeline.autoencoder", autoencoder}},
              more);
}

Task encoded_task(const Settings& settings, Task task = staged_task()) {
  return with_autoencoders(toy_recipe(settings).options, std::move(task), ToyData(90));
}

Weights weights_of(const Task& task) {
  Weights weights;
  for (const NamedTensor& one : named_weights(*task.module)) weights[one.name] = one.tensor.clone();
  return weights;
}

// The network of `settings` as one process trains it, without stages.
StagedResult unsplit(const Settings& settings, StagedOptions options) {
  options.change = [&](int /*rank*/, Task& task) {
    task = encoded_task(settings, std::move(task));
  };
  return run_staged(1, options);
}

TEST(CodeWidth, IsANumberOrARatio) {
  EXPECT_EQ(code_width("none", 16).value(), 0u);
  EXPECT_EQ(code_width("5", 16).value(), 5u);
  EXPECT_EQ(code_width("16", 16).value(), 16u);
  EXPECT_EQ(code_width("1x", 16).value(), 16u);
  EXPECT_EQ(code_width("5x", 16).value(), 4u);
  EXPECT_EQ(code_width("16x", 16).value(), 1u);
  for (const char* text : {"", "0", "0x", "x", "-1", "4.5", "4 x", "half", "17", "17x"})
    EXPECT_EQ(code_width(text, 16).status().code(), ErrorCode::kBadOption) << text;
  EXPECT_THAT(code_width("17", 16).status().message(), HasSubstr("choose from 1 to 16"));
}

TEST(Autoencoder, BeginsAsAProjection) {
  const Settings settings = encoded("4x / 5");
  const Weights weights = weights_of(encoded_task(settings));
  const torch::Tensor first = weights.at("first.encoder.weight"),
                      third = weights.at("third.encoder.weight");
  EXPECT_EQ(first.sizes(), (torch::IntArrayRef{4, 16}));
  EXPECT_EQ(third.sizes(), (torch::IntArrayRef{5, 16}));
  for (const torch::Tensor& encoder : {first, third})
    EXPECT_LT((encoder.mm(encoder.t()) - torch::eye(encoder.size(0))).abs().max().item<float>(),
              1e-6);
  EXPECT_TRUE(torch::equal(weights.at("second.decoder.weight"), first.t()));
  EXPECT_TRUE(torch::equal(weights.at("output.decoder.weight"), third.t()));
  EXPECT_GT((first - third.slice(0, 0, 4)).abs().max().item<float>(), 0.1);

  const Weights again = weights_of(encoded_task(settings));
  const Weights other = weights_of(encoded_task(with(settings, {{"train.seed", "4"}})));
  for (const auto& [name, weight] : weights) EXPECT_TRUE(torch::equal(weight, again.at(name)));
  EXPECT_FALSE(torch::equal(first, other.at("first.encoder.weight")));
  EXPECT_TRUE(
      torch::equal(weights.at("first.weight"), weights_of(staged_task()).at("first.weight")));
}

// Images have channels in front, sequences have features at the end.
TEST(Autoencoder, WorksOnChannelsOrTheLastDimension) {
  const auto reshaped = [](std::vector<int64_t> shape) {
    Task task = staged_task();
    task.layers[0].forward = [shape, inner = task.layers[0].forward](const torch::Tensor& x) {
      return inner(x).view(shape);
    };
    task.layers[1].forward = [inner = task.layers[1].forward](const torch::Tensor& x) {
      return inner(x.flatten(1));
    };
    return task;
  };
  const Settings settings = encoded("3 / none");
  const torch::Tensor x = ToyData(6).fetch(std::vector<uint64_t>{0, 1, 2, 3, 4, 5}, {}).inputs;
  const std::vector<std::pair<std::vector<int64_t>, const char*>> cases = {
      {{-1, 4, 2, 2}, "nchw,kc->nkhw"}, {{-1, 4, 4}, "ntc,kc->ntk"}, {{-1, 16}, "nc,kc->nk"}};
  for (const auto& [shape, products] : cases) {
    const torch::Tensor before = reshaped(shape).layers[0].forward(x);
    const Task task = encoded_task(settings, reshaped(shape));
    const torch::Tensor weight = weights_of(task).at("first.encoder.weight");
    const torch::Tensor code = task.layers[0].forward(x);
    EXPECT_TRUE(torch::allclose(code, torch::einsum(products, {before, weight}), 1e-5, 1e-6));
    EXPECT_EQ(task.forward(x).sizes(), (torch::IntArrayRef{6, 3}));
  }
}

// One step on all samples, against autograd on the formulas.
TEST(Autoencoder, GetsTheGradientsOfTheUnsplitNetwork) {
  const Settings settings =
      encoded("4 / 5", {{"train.batch", "40"}, {"train.epochs", "1"}, {"optimizer.lr", "1"}});
  Weights before = weights_of(encoded_task(settings));
  for (auto& [name, weight] : before) weight.set_requires_grad(true);
  std::vector<uint64_t> ids(40);
  for (uint64_t i = 0; i < ids.size(); ++i) ids[i] = i;
  const Batch batch = ToyData(40).fetch(ids, {});
  const auto layer = [&](const std::string& name, const torch::Tensor& x) {
    return x.mm(before.at(name + ".weight").t()) + before.at(name + ".bias");
  };
  const auto matrix = [&](const std::string& name) { return before.at(name + ".weight").t(); };
  torch::Tensor x = torch::relu(layer("first", batch.inputs));
  x = x.mm(matrix("first.encoder")).mm(matrix("second.decoder"));
  x = torch::relu(layer("third", torch::relu(layer("second", x))));
  x = x.mm(matrix("third.encoder")).mm(matrix("output.decoder"));
  torch::nn::functional::cross_entropy(layer("output", x), batch.targets).backward();

  Task trained;
  run_staged(3, {.settings = settings, .samples = 40, .change = [&](int rank, Task& task) {
                   if (rank == 1) trained.module = task.module;
                 }});
  const Weights after = weights_of(trained);
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, weight] : before) {
    const torch::Tensor step = weight.detach() - after.at(name);
    EXPECT_TRUE(torch::allclose(step, weight.grad(), 1e-4, 1e-6)) << name;
    EXPECT_GT(weight.grad().abs().max().item<float>(), 1e-4) << name;
  }
}

TEST(Autoencoder, TrainsInStagesToTheBitsOfOneProcess) {
  const Settings settings = encoded("4x / 5"), more = {{"optimizer.momentum", "0.9"},
                                                       {"optimizer.weight_decay", "0.01"},
                                                       {"clip.norm", "0.5"}};
  StagedOptions options{.settings = more, .dropout = 0.25, .normed = true};
  const StagedResult one = unsplit(settings, options);
  options.settings = with(more, settings);
  const StagedResult cut = run_staged(3, options);
  EXPECT_TRUE(same_bits(cut.weights, one.weights));
  EXPECT_EQ(cut.summary.final_test_loss, one.summary.final_test_loss);
  EXPECT_EQ(cut.tests.back().compressed_loss, cut.tests.back().loss);  // codec fp32
}

TEST(Autoencoder, OfTwoPipelinesThatShareABatchMatchesOneProcess) {
  const Settings settings = encoded("4x / 5");
  StagedOptions options;
  const StagedResult one = unsplit(settings, options);
  options.settings = with(settings, {{"train.micro_batches", "2"}});
  const StagedResult two = run_staged(6, options);
  EXPECT_LT(distance(two.weights, one.weights), 1e-5);
}

TEST(Autoencoder, AsWideAsTheFeaturesChangesNothingAtFirst) {
  const Settings more = {{"train.batch", "90"}, {"train.epochs", "1"}};
  const Settings plain = {{"pipeline.stages", "3"}, {"pipeline.cut", "first, third"}};
  Task without, pairs;
  const auto keep = [](Task& kept) {
    return [&kept](int rank, Task& task) {
      if (rank == 0) kept.module = task.module;
    };
  };
  const StagedResult a =
      run_staged(3, {.settings = with(more, plain), .dropout = 0.25, .change = keep(without)});
  const StagedResult b = run_staged(
      3, {.settings = with(more, encoded("1x")), .dropout = 0.25, .change = keep(pairs)});
  EXPECT_NEAR(a.steps[0].loss, b.steps[0].loss, 1e-6);
  const Weights of_pairs = weights_of(pairs);
  for (const auto& [name, weight] : weights_of(without))
    EXPECT_TRUE(torch::allclose(weight, of_pairs.at(name), 1e-5, 1e-6)) << name;
}

// 20 samples of 16 features in two micro-batches, in codes of 4 and of 5 values.
TEST(Autoencoder, CountsTheBytesOfCodesAndTheValuesOfActivations) {
  const Settings more = {{"train.micro_batches", "2"},
                         {"train.drop_last", "true"},
                         {"pipeline.forward", "fp16"},
                         {"pipeline.backward", "fp32"}};
  const StagedResult result = run_staged(3, {.settings = encoded("4x / 5", more)});
  constexpr uint64_t kHeads = 2 * (48 + 24), kSize = 2 * 4;
  ASSERT_FALSE(result.pipelines.empty());
  for (const PipelineReport& step : result.pipelines) {
    ASSERT_THAT(step.boundaries, SizeIs(2));
    EXPECT_EQ(step.boundaries[0].name, "first");
    EXPECT_EQ(step.boundaries[0].forward.values, 320u);
    EXPECT_EQ(step.boundaries[0].forward.payload_bytes, kSize + 2 * 80);
    EXPECT_EQ(step.boundaries[0].backward.payload_bytes, kSize + 4 * 80);
    EXPECT_EQ(step.boundaries[1].forward.message_bytes, kHeads + kSize + 2 * 100);
    EXPECT_EQ(step.boundaries[1].backward.values, 320u);
  }
  EXPECT_NEAR(result.summary.codec_ratio, 4 * 4 * 320 / (168.0 + 328 + 208 + 408), 1e-9);
  EXPECT_EQ(result.summary.dense_bytes_per_step, 4 * 4 * 320 / 3);  // whole bytes, of three ranks
}

// What remembers what crossed remembers codes.
TEST(Autoencoder, LearnsWithCodecsAndMemoriesOfCodes) {
  const Settings base = {{"train.drop_last", "true"},
                         {"train.micro_batches", "2"},
                         {"train.epochs", "10"},
                         {"optimizer.momentum", "0.9"},
                         {"optimizer.lr", "0.03"}};
  for (const Settings& more :
       {Settings{{"pipeline.forward", "fp16"}, {"pipeline.backward", "fp16"}},
        Settings{{"pipeline.forward", "topk:density=0.5"},
                 {"pipeline.forward_memory", "ef"},
                 {"pipeline.backward", "int8"}},
        Settings{{"pipeline.forward", "topk:density=0.5"}, {"pipeline.shared_positions", "true"}},
        Settings{{"pipeline.forward", "uniform:bits=4"}, {"pipeline.forward_memory", "aqsgd"}},
        Settings{{"pipeline.forward", "int8"}, {"pipeline.forward_memory", "ef21"}}}) {
    const StagedResult result =
        run_staged(3, {.settings = with(encoded("2x", base), more), .samples = 400});
    EXPECT_LT(result.summary.best_test_error, 0.35) << more[0].second;
    EXPECT_NE(result.tests.back().compressed_loss, result.tests.back().loss) << more[0].second;
  }
}

TEST(Autoencoder, StaysInATaskThatIsTrainedAgain) {
  const Settings settings = encoded("4");
  std::vector<Task> tasks(3);
  const auto train = [&] {
    run_staged(3, {.settings = settings, .change = [&](int rank, Task& task) {
                     Task& kept = tasks[static_cast<size_t>(rank)];
                     if (kept.module == nullptr) kept = task;
                     task = kept;
                   }});
    return weights_of(tasks[0]);
  };
  const Weights first = train();
  const Weights kept = weights_of(encoded_task(settings, tasks[0]));
  for (const auto& [name, weight] : first) EXPECT_TRUE(torch::equal(weight, kept.at(name))) << name;
  const Weights second = train();
  EXPECT_EQ(first.size(), second.size());
  EXPECT_FALSE(torch::equal(first.at("first.encoder.weight"), second.at("first.encoder.weight")));
}

TEST(Autoencoder, OfALayerWithoutWeightsGetsAModule) {
  Task task = staged_task();
  const auto twice = [](const torch::Tensor& x) { return 2 * x; };
  task.layers.insert(task.layers.begin() + 1,
                     Layer{.name = "double", .module = nullptr, .forward = twice});
  const Settings settings = with(encoded("4 / none"), {{"pipeline.cut", "double, third"}});
  const Weights weights = weights_of(encoded_task(settings, std::move(task)));
  EXPECT_TRUE(weights.contains("double.encoder.weight"));
  EXPECT_TRUE(weights.contains("second.decoder.weight"));
}

TEST(Autoencoder, IsRefusedWhereItDoesNotFit) {
  const auto fault = [](const Settings& settings) {
    for (const RecipeFault& found : find_faults(toy_recipe(settings).options))
      if (found.key == "pipeline.autoencoder") return found.status.message();
    return std::string();
  };
  EXPECT_EQ(fault(encoded("4 / none")), "");
  EXPECT_EQ(fault({{"pipeline.autoencoder", "none"}}), "");
  EXPECT_THAT(fault(encoded("0")), HasSubstr("32, at least 1"));
  EXPECT_THAT(fault(encoded("4 / 4 / 4")), HasSubstr("has 3 parts where 3 stages have 2"));
  EXPECT_THAT(fault({{"pipeline.autoencoder", "4"}}), HasSubstr("pipeline.stages to 2 or more"));
  EXPECT_THAT(fault(with(encoded("4"), {{"pipeline.cut", "parameters"}})),
              HasSubstr("name the last layer of each stage"));

  const auto refusal = [](const Settings& settings, Task task) {
    return [settings, task] { encoded_task(settings, task); };
  };
  EXPECT_THAT(refusal(encoded("17"), staged_task()),
              ::testing::ThrowsMessage<Error>(HasSubstr(
                  "pipeline.autoencoder: behind layer 'first' '17' does not go with 16 features: "
                  "choose from 1 to 16")));
  EXPECT_THAT(refusal(with(encoded("4"), {{"pipeline.cut", "first, fourth"}}), staged_task()),
              ::testing::ThrowsMessage<Error>(HasSubstr("first, second, third, output")));
  Task taken = staged_task();
  taken.layers[0].module->register_module("encoder", torch::nn::Linear(16, 4));
  EXPECT_THAT(refusal(encoded("4"), taken),
              ::testing::ThrowsMessage<Error>(HasSubstr("another module 'encoder' already")));
  EXPECT_THROW(run_staged(3, {.settings = encoded("17")}), Error);
}

}  // namespace
}  // namespace thinwire
