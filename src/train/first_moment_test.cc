// Tests that Adam has no first moment beside codecs that leave most values for later, and has it
// beside others.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

std::vector<ToyResult> run_with(const char* codec, const char* place, const char* beta1) {
  return run_toy(2, {.settings = {{"optimizer.name", "adam"},
                                  {"optimizer.lr", "0.01"},
                                  {"optimizer.beta1", beta1},
                                  {"exchange.codec", codec},
                                  {"exchange.momentum", place}}});
}

TEST(FirstMoment, IsAbsentBesideSparseCodecs) {
  const auto by_default = run_with("topk:density=0.1", "auto", "0.9");
  EXPECT_TRUE(same_bits(by_default[0].weights, by_default[1].weights));
  EXPECT_TRUE(
      same_bits(by_default[0].weights, run_with("topk:density=0.1", "optimizer", "0")[0].weights));
  EXPECT_GT(
      distance(by_default[0].weights, run_with("topk:density=0.1", "optimizer", "0.9")[0].weights),
      1e-3);
}

TEST(FirstMoment, IsAdamsOwnBesideOtherCodecs) {
  for (const char* codec : {"fp32", "int8"})
    EXPECT_TRUE(same_bits(run_with(codec, "auto", "0.9")[0].weights,
                          run_with(codec, "optimizer", "0.9")[0].weights))
        << codec;
}

TEST(FirstMoment, CannotBePutIntoTheMemory) {
  const auto faults = find_faults(
      toy_recipe(
          {{"optimizer.name", "adam"}, {"exchange.codec", "topk"}, {"exchange.momentum", "memory"}})
          .options,
      {});
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults.front().key, "exchange.momentum");
  EXPECT_THAT(faults.front().status.message(), HasSubstr("cannot act in the memory"));
}

}  // namespace
}  // namespace thinwire
