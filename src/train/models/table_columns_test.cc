// Tests of the first layer of networks on tables, and of networks that begin with it.
// SPDX-License-Identifier: Apache-2.0
#include "train/models/table_columns.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "train/describe.h"
#include "train/models/models.h"

namespace thinwire {
namespace {

using testing::ElementsAre;

// Two numbers, then a column of 3 and one of 2 categories.
const SampleShape kTable{.input = {4}, .classes = 2, .categories = {3, 2}};

torch::Tensor two_rows() { return torch::tensor({{0.5f, -1.f, 2.f, 0.f}, {1.5f, 3.f, 0.f, 1.f}}); }

TEST(TableColumns, CategoriesBecomeOneHot) {
  const Layer layer = table_columns(kTable, 0);
  EXPECT_EQ(layer.module, nullptr);
  EXPECT_EQ(count_values(kTable, 0), 7);
  EXPECT_TRUE(layer.forward(two_rows())
                  .equal(torch::tensor({{0.5f, -1.f, 0.f, 0.f, 1.f, 1.f, 0.f},
                                        {1.5f, 3.f, 1.f, 0.f, 0.f, 0.f, 1.f}})));
}

TEST(TableColumns, CategoriesBecomeRowsOfOneTable) {
  const Layer layer = table_columns(kTable, 3);
  EXPECT_EQ(count_values(kTable, 3), 8);
  const torch::NoGradGuard no_grad;
  const torch::Tensor table = layer.module->named_parameters()["weight"];
  table.copy_(torch::arange(15).view({5, 3}));
  EXPECT_TRUE(layer.forward(two_rows())
                  .equal(torch::tensor({{0.5f, -1.f, 6.f, 7.f, 8.f, 9.f, 10.f, 11.f},
                                        {1.5f, 3.f, 0.f, 1.f, 2.f, 12.f, 13.f, 14.f}})));
}

TEST(TableColumns, NetworksHaveTheirWeights) {
  const Task task = make_model({.name = "mlp", .hidden = 6, .layers = 1, .embedding = 3}, kTable);
  std::vector<std::string> names;
  for (const TensorSpec& spec : describe_parameters(*task.module)) names.push_back(spec.name);
  EXPECT_THAT(names, ElementsAre("embedding.weight", "hidden1.weight", "hidden1.bias",
                                 "output.weight", "output.bias"));
  EXPECT_EQ(task.module->named_parameters()["hidden1.weight"].size(1), 8);
  EXPECT_THAT(task.forward(two_rows()).sizes().vec(), ElementsAre(2, 2));
  const Task hot = make_model({.name = "mlp", .hidden = 6}, kTable);
  EXPECT_EQ(hot.module->named_parameters()["hidden1.weight"].size(1), 7);
  EXPECT_THAT(hot.forward(two_rows()).sizes().vec(), ElementsAre(2, 2));
}

TEST(TableColumns, WhatTakesNoTablesRefusesThem) {
  const auto code_of = [](const ModelOptions& options, const SampleShape& shape) {
    try {
      make_model(options, shape);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kOk;
  };
  for (const char* name :
       {"cnn-mnist", "cnn-cifar", "cnn7", "resnet20", "resnet18", "char-lstm", "gpt-mini"})
    EXPECT_EQ(code_of({.name = name}, kTable), ErrorCode::kMismatch) << name;
  EXPECT_EQ(code_of({.name = "mlp", .embedding = 3}, {{1, 28, 28}, 10}), ErrorCode::kBadOption);
}

}  // namespace
}  // namespace thinwire
