// Tests of data sets that do not ship with thinwire, if THINWIRE_DATA_DIR names a folder that
// has them: complete, and as their authors describe them.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdlib>
#include <numeric>

#include "thinwire/trainer.h"
#include "train/data/data_sets.h"

namespace thinwire {
namespace {

using testing::ElementsAre;

class PublishedData : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("THINWIRE_DATA_DIR");
    if (folder == nullptr) GTEST_SKIP() << "THINWIRE_DATA_DIR is not set";
    folder_ = folder;
  }

  DataSplits load(const std::string& name) {
    EXPECT_THAT(check_data_set(name, folder_).problems, testing::IsEmpty());
    return make_data_set({.name = name, .folder = folder_});
  }

  std::string folder_;
};

Batch all_of(const Dataset& set) {
  std::vector<uint64_t> ids(set.size());
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  return set.fetch(ids, {});
}

std::vector<int64_t> classes_in(const torch::Tensor& targets) {
  const torch::Tensor counts = torch::bincount(targets);
  return {counts.const_data_ptr<int64_t>(), counts.const_data_ptr<int64_t>() + counts.numel()};
}

// Over all pixels of a channel: mean 0 and deviation 1, but for rounding of the published figures.
void expect_normal(const torch::Tensor& images) {
  const std::vector<int64_t> dims = {0, 2, 3};
  EXPECT_LT(images.mean(dims).abs().max().item<float>(), 1e-3);
  EXPECT_LT((images.square().mean(dims) - 1).abs().max().item<float>(), 2e-3);
}

TEST_F(PublishedData, Mnist) {
  const DataSplits splits = load("mnist");
  const Batch train = all_of(*splits.train);
  EXPECT_THAT(classes_in(train.targets),
              ElementsAre(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949));
  EXPECT_THAT(classes_in(all_of(*splits.test).targets),
              ElementsAre(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009));
  expect_normal(train.inputs);
}

TEST_F(PublishedData, Cifar10) {
  const DataSplits splits = load("cifar10");
  const Batch train = all_of(*splits.train);
  EXPECT_THAT(classes_in(train.targets), testing::ElementsAreArray(std::vector<int64_t>(10, 5000)));
  EXPECT_THAT(splits.test->size(), testing::AnyOf(1000u, 10000u));
  expect_normal(train.inputs);
}

TEST_F(PublishedData, SpokenDigits) {
  const DataSplits splits = load("spoken-digits");
  EXPECT_THAT(classes_in(all_of(*splits.train).targets),
              testing::ElementsAreArray(std::vector<int64_t>(10, 270)));
  const Batch test = all_of(*splits.test);
  EXPECT_THAT(classes_in(test.targets), testing::ElementsAreArray(std::vector<int64_t>(10, 30)));
  EXPECT_TRUE(test.inputs.isfinite().all().item<bool>());
}

TEST_F(PublishedData, Adult) {
  const DataSplits splits = load("adult");
  EXPECT_THAT(splits.shape.categories, ElementsAre(9, 16, 7, 15, 6, 5, 2, 42));
  const Batch train = all_of(*splits.train);
  EXPECT_THAT(classes_in(train.targets), ElementsAre(24720, 7841));
  EXPECT_THAT(classes_in(all_of(*splits.test).targets), ElementsAre(12435, 3846));
  const torch::Tensor numbers = train.inputs.slice(1, 0, 6).to(torch::kFloat64);
  EXPECT_LT(numbers.mean(0).abs().max().item<double>(), 1e-5);
  EXPECT_LT((numbers.square().mean(0) - 1).abs().max().item<double>(), 1e-5);
}

}  // namespace
}  // namespace thinwire
