// Tests of seals: every change of an array is found and named; order does not matter.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "thinwire/state.h"

namespace thinwire {
namespace {

using testing::HasSubstr;

StateArrays sealed() {
  constexpr std::array kFloats = {1.0f, -2.0f, 0.0f};
  constexpr std::array kNumbers = {int64_t{7}};
  StateArrays arrays = {make_state("w/residual", kFloats, OnResize::kOwedToMean),
                        make_state("b/turn", kNumbers, OnResize::kCopy),
                        make_state("a/none", std::span<const float>(), OnResize::kJoin)};
  seal_state(arrays);
  return arrays;
}

TEST(Seal, WhatWasSealedPassesInAnyOrder) {
  StateArrays arrays = sealed();
  EXPECT_EQ(std::count_if(arrays.begin(), arrays.end(), is_seal), 1);
  std::sort(arrays.begin(), arrays.end(),
            [](const StateArray& a, const StateArray& b) { return a.name < b.name; });
  do EXPECT_TRUE(check_seal(arrays));
  while (std::next_permutation(arrays.begin(), arrays.end(),
                               [](const auto& a, const auto& b) { return a.name < b.name; }));
}

TEST(Seal, NothingStaysNothingAndUnsealedArraysPass) {
  StateArrays none;
  seal_state(none);
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(check_seal(none));
  StateArrays earlier = sealed();
  std::erase_if(earlier, is_seal);
  EXPECT_EQ(earlier.size(), 3);
  EXPECT_TRUE(check_seal(earlier));
}

TEST(Seal, EveryChangeIsNamed) {
  const auto refused = [](const std::function<void(StateArray&)>& change, const char* why) {
    StateArrays arrays = sealed();
    change(arrays[0]);
    const Status status = check_seal(arrays);
    EXPECT_EQ(status.code(), ErrorCode::kCorrupt) << why;
    EXPECT_THAT(status.message(), HasSubstr("array 'w/residual' is not what was saved")) << why;
  };
  for (size_t bit = 0; bit < 96; ++bit)
    refused([&](StateArray& array) { array.data[bit / 8] ^= std::byte{1} << (bit % 8); }, "bit");
  refused([](StateArray& array) { array.shape = {1, 3}; }, "shape");
  refused([](StateArray& array) { array.type = StateType::kUint8; }, "type");
  refused([](StateArray& array) { array.on_resize = OnResize::kShared; }, "resize");
  refused([](StateArray& array) { array.data.pop_back(); }, "length");
}

TEST(Seal, RenamedMissingAndAddedArraysAreFound) {
  StateArrays renamed = sealed();
  renamed[0].name = "w/residuam";
  EXPECT_THAT(check_seal(renamed).message(), HasSubstr("'w/residuam'"));
  StateArrays fewer = sealed();
  fewer.erase(fewer.begin());
  EXPECT_THAT(check_seal(fewer).message(), HasSubstr("has 2 arrays, but was saved with 3"));
  StateArrays more = sealed();
  more.push_back(make_state("c/d", std::span<const float>(), OnResize::kCopy));
  EXPECT_EQ(check_seal(more).code(), ErrorCode::kCorrupt);
  StateArrays twice = sealed();
  twice.push_back(twice[0]);
  EXPECT_EQ(check_seal(twice).code(), ErrorCode::kCorrupt);
}

TEST(Seal, ADamagedSealIsFoundToo) {
  for (size_t byte = 0; byte < 24; ++byte) {
    StateArrays arrays = sealed();
    arrays.back().data[byte] ^= std::byte{16};
    EXPECT_EQ(check_seal(arrays).code(), ErrorCode::kCorrupt);
  }
  StateArrays arrays = sealed();
  arrays.back().data.pop_back();
  EXPECT_EQ(check_seal(arrays).code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace thinwire
