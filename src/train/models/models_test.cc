// Tests of every network: number of parameters, output shapes, gradients, initial weights.
// SPDX-License-Identifier: Apache-2.0
#include "train/models/models.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <thread>

#include "train/describe.h"
#include "train/models/initialise.h"

namespace thinwire {
namespace {

using testing::ElementsAre;

const SampleShape kGrey28{{1, 28, 28}, 10};
const SampleShape kColour32{{3, 32, 32}, 10};
const SampleShape kColour28{{3, 28, 28}, 10};
const SampleShape kText{{16}, 65};
const SampleShape kSpeech{{64, 40}, 10};

struct Case {
  ModelOptions options;
  SampleShape shape;
  uint64_t parameters;  // in all
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.options.name; }

uint64_t count_parameters(const torch::nn::Module& module) {
  uint64_t count = 0;
  for (const TensorSpec& spec : describe_parameters(module)) count += spec.count();
  return count;
}

bool takes_text(const Case& c) {
  return c.options.name == "char-lstm" || c.options.name == "gpt-mini";
}

torch::Tensor some_inputs(const Case& c, int64_t samples) {
  std::vector<int64_t> shape = c.shape.input;
  shape.insert(shape.begin(), samples);
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  const torch::Tensor steps = torch::arange(count).reshape(shape);
  if (takes_text(c)) return steps % c.shape.classes;
  return torch::sin(steps.to(torch::kFloat) * 0.37);
}

class EveryModel : public testing::TestWithParam<Case> {};

TEST_P(EveryModel, HasTheStatedSize) {
  const Task task = make_model(GetParam().options, GetParam().shape);
  EXPECT_EQ(count_parameters(*task.module), GetParam().parameters);
}

TEST_P(EveryModel, GivesAClassPerPredictionAndAGradientPerParameter) {
  const Case& c = GetParam();
  const Task task = make_model(c.options, c.shape);
  const torch::Tensor outputs = task.forward(some_inputs(c, 3));
  if (takes_text(c)) {
    EXPECT_THAT(outputs.sizes().vec(), ElementsAre(3, c.shape.input[0], c.shape.classes));
  } else {
    EXPECT_THAT(outputs.sizes().vec(), ElementsAre(3, c.shape.classes));
  }
  const torch::Tensor flat = outputs.reshape({-1, c.shape.classes});
  torch::nn::functional::cross_entropy(flat, torch::arange(flat.size(0)) % c.shape.classes)
      .backward();
  for (const TrainableParameter& parameter : trainable_parameters(*task.module)) {
    ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.spec.name;
    EXPECT_GT(parameter.tensor.grad().abs().sum().item<float>(), 0) << parameter.spec.name;
  }
}

TEST_P(EveryModel, JudgesEachSampleAlone) {
  const Case& c = GetParam();
  const Task task = make_model(c.options, c.shape);
  task.module->eval();
  const torch::NoGradGuard no_grad;
  const torch::Tensor inputs = some_inputs(c, 4);
  const torch::Tensor together = task.forward(inputs);
  const torch::Tensor alone = task.forward(inputs.slice(0, 2, 3));
  EXPECT_TRUE(torch::allclose(together.slice(0, 2, 3), alone, 1e-4, 1e-5));
  EXPECT_FALSE(torch::allclose(together[0], together[2]));
}

std::vector<torch::Tensor> weights_of(const ModelOptions& options, const SampleShape& shape) {
  std::vector<torch::Tensor> weights;
  for (auto& parameter : trainable_parameters(*make_model(options, shape).module))
    weights.push_back(parameter.tensor.detach());
  return weights;
}

TEST_P(EveryModel, IsAPureFunctionOfTheSeed) {
  Case c = GetParam();
  const auto first = weights_of(c.options, c.shape);
  torch::manual_seed(99);
  std::vector<torch::Tensor> elsewhere;
  std::thread([&] { elsewhere = weights_of(c.options, c.shape); }).join();
  ++c.options.seed;
  const auto other = weights_of(c.options, c.shape);
  bool differs = false;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(torch::equal(first[i], elsewhere[i])) << i;
    differs |= !torch::equal(first[i], other[i]);
  }
  EXPECT_TRUE(differs);
}

// Sizes by hand or from the literature; each model's file says which.
INSTANTIATE_TEST_SUITE_P(
    All, EveryModel,
    testing::Values(
        Case{{.name = "mlp"}, kGrey28, 669'706},
        // The network of the public comparison of gradient compressors.
        Case{{.name = "mlp", .hidden = 2048, .layers = 3}, kGrey28, 10'020'874},
        Case{{.name = "cnn-mnist"}, kGrey28, 582'026},
        Case{{.name = "cnn-cifar"}, kColour32, 145'578}, Case{{.name = "cnn7"}, kColour28, 351'946},
        Case{{.name = "cnn7", .width = 16, .hidden = 64}, kColour28, 23'482},
        Case{{.name = "resnet8"}, kColour32, 75'290},
        Case{{.name = "resnet8", .width = 4}, kColour32, 5'006},
        Case{{.name = "resnet20"}, kColour32, 269'722},
        // The size that everybody's ResNet18 for CIFAR has.
        Case{{.name = "resnet18"}, kColour32, 11'173'962},
        Case{{.name = "resnet18", .hidden = 16}, kColour32, 701'466},
        Case{{.name = "gpt-mini"}, kText, 812'097},
        Case{{.name = "gpt-mini", .hidden = 64, .layers = 2}, {{16}, 65}, 109'505},
        Case{{.name = "char-lstm"}, kText, 873'793},
        Case{{.name = "char-lstm", .hidden = 32, .layers = 3, .embedding = 8}, {{16}, 65}, 24'937},
        Case{{.name = "dnn-speech"}, kSpeech, 5'781'514},
        Case{{.name = "dnn-speech", .hidden = 64, .layers = 2, .activation = "sigmoid"},
             kSpeech,
             168'714}));

TEST(Models, NamesAreKnownAndTested) {
  EXPECT_THAT(model_names(),
              ElementsAre("mlp", "cnn-mnist", "cnn-cifar", "cnn7", "resnet8", "resnet20",
                          "resnet18", "char-lstm", "gpt-mini", "dnn-speech"));
  for (const std::string_view name : model_names()) {
    ModelOptions options{.name = std::string(name)};
    const bool text = name == "char-lstm" || name == "gpt-mini";
    EXPECT_NO_THROW(make_model(options, text                   ? kText
                                        : name == "dnn-speech" ? kSpeech
                                        : name == "cnn-mnist"  ? kGrey28
                                                               : kColour32));
  }
}

template <typename Call>
ErrorCode code_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kOk;
}

TEST(Models, RefuseWhatTheyDoNotHave) {
  EXPECT_EQ(code_of([] { make_model({.name = "lenet"}, kGrey28); }), ErrorCode::kUnknownName);
  EXPECT_EQ(code_of([] { make_model({.name = "cnn-mnist", .layers = 3}, kGrey28); }),
            ErrorCode::kBadOption);
  EXPECT_EQ(code_of([] { make_model({.name = "mlp", .embedding = 3}, kGrey28); }),
            ErrorCode::kBadOption);
  EXPECT_EQ(code_of([] { make_model({.name = "mlp", .dropout = 1}, kGrey28); }),
            ErrorCode::kBadOption);
  EXPECT_EQ(code_of([] { make_model({.name = "cnn-mnist"}, kText); }), ErrorCode::kMismatch);
  EXPECT_EQ(code_of([] { make_model({.name = "mlp"}, {}); }), ErrorCode::kMismatch);
  EXPECT_EQ(code_of([] { make_model({.name = "cnn-cifar"}, kText); }), ErrorCode::kMismatch);
  EXPECT_EQ(code_of([] { make_model({.name = "cnn7"}, {{3, 20, 20}, 10}); }), ErrorCode::kMismatch);
  EXPECT_EQ(code_of([] { make_model({.name = "mlp", .width = 8}, kGrey28); }),
            ErrorCode::kBadOption);
  EXPECT_EQ(code_of([] { make_model({.name = "resnet20"}, kSpeech); }), ErrorCode::kMismatch);
  EXPECT_EQ(code_of([] { make_model({.name = "resnet20", .dropout = 0.1}, kColour32); }),
            ErrorCode::kBadOption);
  EXPECT_EQ(code_of([] { make_model({.name = "char-lstm"}, kGrey28); }), ErrorCode::kMismatch);
  EXPECT_EQ(code_of([] { make_model({.name = "dnn-speech", .activation = "tanh"}, kSpeech); }),
            ErrorCode::kBadOption);
}

TEST(Models, DropoutIsOnlyOnInTraining) {
  const Task task = make_model({.name = "mlp", .dropout = 0.5}, kGrey28);
  const torch::Tensor image = torch::ones({1, 1, 28, 28});
  EXPECT_THROW(task.forward(image), Error);  // there is no step to draw a mask for
  task.module->eval();
  EXPECT_NO_THROW(task.forward(image));
}

// Moments of a uniform distribution in +-bound: mean 0, deviation bound / sqrt(3).
void expect_uniform(const torch::Tensor& values, double bound) {
  const double count = static_cast<double>(values.numel());
  EXPECT_LE(values.abs().max().item<float>(), bound);
  EXPECT_GT(values.abs().max().item<float>(), bound * (1 - 10 / count));
  EXPECT_LT(std::abs(values.mean().item<float>()), 4 * bound / std::sqrt(3 * count));
  EXPECT_NEAR(values.std().item<float>(), bound / std::sqrt(3), 4 * bound / std::sqrt(count));
}

TEST(Initialise, DrawsTheLayersStandardDistribution) {
  const torch::NoGradGuard no_grad;
  torch::nn::Linear linear(100, 300);
  torch::nn::Conv2d convolution(8, 64, 5);
  torch::nn::LSTM lstm(30, 64);
  torch::nn::Embedding embedding(300, 100);
  torch::nn::BatchNorm2d norm(16);
  norm->weight.fill_(3);
  torch::nn::Sequential net(linear, convolution, embedding, norm);
  net->push_back(torch::nn::ModuleHolder<torch::nn::LSTMImpl>(lstm));
  initialise(*net, 7);
  expect_uniform(linear->weight, 0.1);
  expect_uniform(linear->bias, 0.1);
  expect_uniform(convolution->weight, 1 / std::sqrt(200.0));
  expect_uniform(convolution->bias, 1 / std::sqrt(200.0));
  for (const torch::Tensor& weights : lstm->parameters()) expect_uniform(weights, 0.125);
  EXPECT_NEAR(embedding->weight.mean().item<float>(), 0, 0.03);
  EXPECT_NEAR(embedding->weight.std().item<float>(), 1, 0.03);
  EXPECT_TRUE(torch::equal(norm->weight, torch::ones({16})));
  EXPECT_TRUE(torch::equal(norm->bias, torch::zeros({16})));
}

TEST(Initialise, GivesEachParameterItsOwnNumbers) {
  torch::nn::Sequential net(torch::nn::Linear(10, 10), torch::nn::Linear(10, 10));
  initialise(*net, 7);
  const auto weights = net->named_parameters();
  EXPECT_FALSE(torch::equal(weights["0.weight"], weights["1.weight"]));
}

TEST(Initialise, RefusesWhatItDoesNotKnow) {
  torch::nn::Module own;
  own.register_parameter("scale", torch::ones({2}));
  EXPECT_EQ(code_of([&] { initialise(own, 1); }), ErrorCode::kContract);
}

}  // namespace
}  // namespace thinwire
