// Tests of planted labels: how many, which, and that nothing else changes.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/wrong_labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "train/toy_task.h"

namespace thinwire {
namespace {

// Hands out its own memory, as data sets of a caller's own may.
class OwnMemory final : public Dataset {
 public:
  uint64_t size() const override { return 4; }
  Batch fetch(std::span<const uint64_t> /*ids*/, const FetchContext& /*context*/) const override {
    return {inputs, targets};
  }
  torch::Tensor inputs = torch::zeros({4, 2}), targets = torch::zeros({4}, torch::kInt64);
};

TEST(WrongLabels, AShareOfTheSamplesGetsEachOtherClassAlikeOften) {
  const WrongLabels wrong{.share = 0.05, .seed = 7, .classes = 10};
  std::array<int, 10> counts = {};
  for (uint64_t id = 0; id < 100000; ++id) ++counts[static_cast<size_t>(wrong.shift(id))];
  EXPECT_NEAR(counts[0], 95000, 350);                                          // deviation 69
  for (size_t by = 1; by < 10; ++by) EXPECT_NEAR(counts[by], 556, 120) << by;  // deviation 24
  EXPECT_EQ((WrongLabels{.share = 0, .seed = 7, .classes = 10}.shift(3)), 0);
  EXPECT_NE((WrongLabels{.share = 1, .seed = 7, .classes = 2}.shift(3)), 0);
}

TEST(WrongLabels, ChangeLabelsAloneAsFunctionsOfSeedAndSample) {
  const auto plain = std::make_shared<ToyData>(200);
  const WrongLabels wrong{.share = 0.3, .seed = 1, .classes = 3};
  const auto planted = plant_wrong_labels(plain, wrong);
  const auto other = plant_wrong_labels(plain, {.share = 0.3, .seed = 2, .classes = 3});
  ASSERT_EQ(planted->size(), 200u);
  std::vector<uint64_t> ids(200);
  std::iota(ids.rbegin(), ids.rend(), uint64_t{0});  // not in order of ids
  const Batch was = plain->fetch(ids, {}), is = planted->fetch(ids, {});
  EXPECT_TRUE(is.inputs.equal(was.inputs));
  EXPECT_FALSE(is.targets.equal(was.targets));
  EXPECT_FALSE(is.targets.equal(other->fetch(ids, {}).targets));
  for (int64_t i = 0; i < 200; ++i) {
    const uint64_t id = ids[static_cast<size_t>(i)];
    const auto before = was.targets[i].item<int64_t>(), now = is.targets[i].item<int64_t>();
    EXPECT_EQ(now != before, wrong.shift(id) != 0) << id;
    EXPECT_EQ(wrong.true_label(id, now), before) << id;
    EXPECT_EQ(planted->fetch({&id, 1}, {}).targets.item<int64_t>(), now) << id;
  }
}

TEST(WrongLabels, LeaveTheMemoryOfTheDataAlone) {
  const auto own = std::make_shared<OwnMemory>();
  const auto planted = plant_wrong_labels(own, {.share = 1, .seed = 1, .classes = 3});
  const std::vector<uint64_t> ids = {0, 1, 2, 3};
  EXPECT_TRUE(planted->fetch(ids, {}).targets.ne(0).all().item<bool>());
  EXPECT_TRUE(own->targets.eq(0).all().item<bool>());
}

}  // namespace
}  // namespace thinwire
