// Tests of what is seen of a network's layers while it runs.
// SPDX-License-Identifier: Apache-2.0
#include "train/layer_inputs.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "train/data/data_test_files.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

namespace nn = torch::nn;

std::vector<uint64_t> four_ids() { return {0, 1, 2, 3}; }

TEST(LayerInputs, AreThoseOfEveryLayerInTheOrderOfThePass) {
  const torch::NoGradGuard no_grad;
  ToyNet net;
  const torch::Tensor x = ToyData(4).fetch(four_ids(), {}).inputs;
  LayerInputs inputs({net.output->weight, net.first->weight});  // and not the second
  net.forward(x);
  const auto seen = inputs.take();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].layer, 1u);
  EXPECT_TRUE(seen[0].inputs.equal(x));
  EXPECT_EQ(seen[1].layer, 0u);
  EXPECT_TRUE(seen[1].inputs.equal(torch::relu(net.second(torch::relu(net.first(x))))));
  EXPECT_EQ(inputs.take().size(), 1u);  // of the line above
  net.forward(x);
  net.forward(x);
  EXPECT_EQ(inputs.take().size(), 4u);
}

// libtorch has other operations for these.
TEST(LayerInputs, AreSeenWithoutBiasWithMoreDimensionsAndOfEmbeddings) {
  const torch::NoGradGuard no_grad;
  nn::Linear plain(nn::LinearOptions(3, 2).bias(false)), deep(3, 2);
  nn::Embedding embedding(5, 4);
  LayerInputs inputs({plain->weight, deep->weight, embedding->weight});
  const torch::Tensor flat = torch::arange(6).to(torch::kFloat).view({2, 3});
  const torch::Tensor cube = torch::arange(12).to(torch::kFloat).view({2, 2, 3});
  const torch::Tensor rows = torch::tensor({{4, 0}, {1, 1}});
  plain(flat);
  plain(cube);
  deep(cube);
  embedding(rows);
  const auto seen = inputs.take();
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_TRUE(seen[0].inputs.equal(flat));
  EXPECT_TRUE(seen[1].inputs.equal(cube));
  EXPECT_TRUE(seen[2].inputs.equal(cube));
  EXPECT_TRUE(seen[3].inputs.equal(rows));
  EXPECT_EQ(seen[3].layer, 2u);
}

TEST(LayerInputs, AreCopies) {
  const torch::NoGradGuard no_grad;
  nn::Linear linear(3, 2);
  torch::Tensor x = torch::ones({1, 3});
  LayerInputs inputs({linear->weight});
  linear(x);
  x.zero_();
  EXPECT_TRUE(inputs.take()[0].inputs.equal(torch::ones({1, 3})));
}

TEST(LayerInputs, EndWithTheObject) {
  const torch::NoGradGuard no_grad;
  nn::Linear linear(3, 2);
  {
    const LayerInputs inputs({linear->weight});
    expect_error([&] { const LayerInputs other({linear->weight}); }, ErrorCode::kContract,
                 "another one sees");
  }
  EXPECT_FALSE(at::hasThreadLocalCallbacks());
  LayerInputs again({linear->weight});
  linear(torch::ones({1, 3}));
  EXPECT_EQ(again.take().size(), 1u);
}

}  // namespace
}  // namespace thinwire
