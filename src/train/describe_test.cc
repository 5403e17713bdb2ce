// Kinds, names and order of parameters.
// SPDX-License-Identifier: Apache-2.0
#include "train/describe.h"

#include <gmock/gmock.h>

#include "thinwire/torch.h"

namespace thinwire {
namespace {

namespace nn = torch::nn;

std::string as_text(const TensorSpec& spec) {
  std::string text = spec.name + " " + std::string(to_string(spec.kind));
  for (const uint64_t extent : spec.shape) text += " " + std::to_string(extent);
  return text;
}

std::vector<std::string> described(const nn::Module& module) {
  std::vector<std::string> lines;
  for (const TensorSpec& spec : describe_parameters(module)) lines.push_back(as_text(spec));
  return lines;
}

TEST(Describe, GivesEachKindItsName) {
  nn::Sequential net(nn::Conv2d(3, 4, 5), nn::BatchNorm2d(4), nn::Linear(8, 2), nn::Embedding(7, 3),
                     nn::LSTM(3, 2), nn::LayerNorm(nn::LayerNormOptions({6})));
  EXPECT_THAT(
      described(*net),
      testing::ElementsAre("0.weight convolution 4 3 5 5", "0.bias bias 4", "1.weight norm 4",
                           "1.bias norm 4", "2.weight linear 2 8", "2.bias bias 2",
                           "3.weight embedding 7 3", "4.weight_ih_l0 recurrent 8 3",
                           "4.weight_hh_l0 recurrent 8 2", "4.bias_ih_l0 bias 8",
                           "4.bias_hh_l0 bias 8", "5.weight norm 6", "5.bias norm 6"));
}

TEST(Describe, TakesTheModuleItself) {
  EXPECT_THAT(described(*nn::GRUCell(2, 3)),
              testing::ElementsAre("weight_ih recurrent 9 2", "weight_hh recurrent 9 3",
                                   "bias_ih bias 9", "bias_hh bias 9"));
  EXPECT_THAT(described(*nn::Linear(nn::LinearOptions(2, 3).bias(false))),
              testing::ElementsAre("weight linear 3 2"));
  EXPECT_THAT(described(*nn::MultiheadAttention(4, 2)),
              testing::ElementsAre("in_proj_weight linear 12 4", "in_proj_bias bias 12",
                                   "out_proj.weight linear 4 4", "out_proj.bias bias 4"));
}

// A parameter of its own, and some that are not trained.
struct Own final : nn::Module {
  Own() {
    scale = register_parameter("scale", torch::ones({2}));
    inner = register_module("inner", nn::Linear(nn::LinearOptions(2, 3).bias(false)));
    frozen = register_module("frozen", nn::Linear(2, 2));
    for (torch::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    last = register_module("last", nn::Embedding(3, 2));
  }
  torch::Tensor scale;
  nn::Linear inner = nullptr, frozen = nullptr;
  nn::Embedding last = nullptr;
};

TEST(Describe, LeavesOutWhatIsNotTrained) {
  EXPECT_THAT(described(Own()), testing::ElementsAre("scale other 2", "inner.weight linear 3 2",
                                                     "last.weight embedding 3 2"));
}

TEST(Describe, NamesATiedTensorOnce) {
  struct Tied final : nn::Module {
    Tied() {
      inner = register_module("inner", nn::Linear(nn::LinearOptions(2, 3).bias(false)));
      outer = register_module("outer", std::make_shared<nn::Module>());
      outer->register_parameter("again", inner->weight);
    }
    nn::Linear inner = nullptr;
    std::shared_ptr<nn::Module> outer;
  };
  const Tied module;
  ASSERT_EQ(module.named_parameters().size(), 2);
  EXPECT_THAT(described(module), testing::ElementsAre("inner.weight linear 3 2"));
}

TEST(Describe, HandsOutTheModulesOwnTensors) {
  nn::Linear linear(2, 3);
  const auto parameters = trainable_parameters(*linear);
  ASSERT_EQ(parameters.size(), 2u);
  EXPECT_TRUE(parameters[0].tensor.is_same(linear->weight));
  EXPECT_EQ(parameters[1].spec.name, "bias");
}

}  // namespace
}  // namespace thinwire
