// Tests of states that groups of ranks saved: who takes what, and what contradicts itself.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/saved_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "thinwire/store.h"

namespace thinwire {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

StateArray array(const std::string& name, float value, OnResize on_resize) {
  return make_state(name, std::span<const float>(&value, 1), on_resize);
}

// Of `ranks` ranks in groups of `inside`: "w" is held at place 0 of each group, "own" by all ranks.
std::vector<StateArrays> saved_by(int ranks, int inside, OnResize on_resize) {
  std::vector<StateArrays> saved(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    StateArrays& arrays = saved[static_cast<size_t>(rank)];
    const auto number = static_cast<float>(rank);
    if (rank % inside == 0) arrays.push_back(array("w/feedback/residual", number, on_resize));
    arrays.push_back(array("own/buffers/mean", 100 + number, on_resize));
    if (inside > 1) arrays.push_back(inside_marker(inside));
  }
  return saved;
}

std::vector<float> values_of(const StateArrays& arrays, const std::string& name) {
  for (const StateArray& one : arrays) {
    if (one.name != name) continue;
    std::vector<float> values(one.data.size() / sizeof(float));
    copy_state(arrays, name, std::span(values)).or_throw();
    return values;
  }
  return {};
}

// What each of `ranks` ranks in groups of `inside` takes of an array, one after another.
std::vector<float> taken(const std::vector<StateArrays>& saved, int ranks, int inside,
                         const std::string& name) {
  const SavedRanks all = std::move(SavedRanks::read(saved).value());
  std::vector<float> values;
  for (int rank = 0; rank < ranks; ++rank)
    for (const float value : values_of(all.share(rank, ranks, inside), name))
      values.push_back(value);
  return values;
}

constexpr auto kOwed = OnResize::kOwedToMean;
constexpr const char* kHeld = "w/feedback/residual";
constexpr const char* kOwn = "own/buffers/mean";

TEST(SavedRanks, InTheSameGroupsAllGoOnWithTheirOwn) {
  const auto saved = saved_by(4, 2, kOwed);
  EXPECT_THAT(taken(saved, 4, 2, kHeld), ElementsAre(0, 0, 2, 2));  // by its group
  EXPECT_THAT(taken(saved, 4, 2, kOwn), ElementsAre(100, 101, 102, 103));
}

// As every rank does that loads what it saved itself.
TEST(SavedRanks, ARankMayGoOnWithItsOwnStateAlone) {
  const auto saved = saved_by(4, 2, kOwed);
  for (int rank = 0; rank < 4; ++rank) {
    const auto own = static_cast<size_t>(rank);
    const std::vector<StateArrays> mine = {saved[own]};
    const SavedRanks alone = std::move(SavedRanks::read(mine).value());
    const StateArrays taken = alone.share(rank, 4, 2);
    EXPECT_EQ(values_of(taken, kOwn), values_of(saved[own], kOwn));
    EXPECT_EQ(values_of(taken, kHeld), values_of(saved[own], kHeld));
  }
}

TEST(SavedRanks, AsManyOtherGroupsTakeThoseOfTheOldOnes) {
  EXPECT_THAT(taken(saved_by(4, 2, kOwed), 2, 1, kHeld), ElementsAre(0, 2));
  EXPECT_THAT(taken(saved_by(4, 2, kOwed), 6, 3, kHeld), ElementsAre(0, 0, 0, 2, 2, 2));
  EXPECT_THAT(taken(saved_by(2, 1, kOwed), 4, 2, kHeld), ElementsAre(0, 0, 1, 1));
}

TEST(SavedRanks, MoreOrFewerGroupsTakeTheMeanOverThoseThatHeld) {
  EXPECT_THAT(taken(saved_by(4, 2, kOwed), 4, 1, kHeld), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(taken(saved_by(4, 1, kOwed), 4, 2, kHeld), ElementsAre(1.5f, 1.5f, 1.5f, 1.5f));
  EXPECT_THAT(taken(saved_by(4, 2, kOwed), 4, 4, kHeld), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(taken(saved_by(4, 2, kOwed), 3, 1, kOwn), ElementsAre(101.5f, 101.5f, 101.5f));
}

TEST(SavedRanks, CopiesAndJoinedArraysComeFromThoseThatHeld) {
  EXPECT_THAT(taken(saved_by(6, 2, OnResize::kCopy), 4, 1, kHeld), ElementsAre(0, 2, 4, 0));
  EXPECT_THAT(taken(saved_by(4, 2, OnResize::kJoin), 3, 1, kHeld), ElementsAre(0, 2, 0, 2, 0, 2));
}

TEST(SavedRanks, ARanksOwnIsNotItsGroups) {
  EXPECT_THAT(taken(saved_by(4, 2, kOwed), 4, 1, kOwn), ElementsAre(100, 101, 102, 103));
  EXPECT_THAT(taken(saved_by(4, 2, kOwed), 4, 4, kOwn), ElementsAre(100, 101, 102, 103));
  // There are as many groups now as there were ranks.
  EXPECT_THAT(taken(saved_by(4, 2, kOwed), 8, 2, kOwn), Each(101.5f));
  const auto joined = taken(saved_by(2, 2, OnResize::kJoin), 4, 2, kOwn);
  EXPECT_THAT(joined, ElementsAre(100, 101, 100, 101, 100, 101, 100, 101));
}

std::string refusal(const std::vector<StateArrays>& saved) {
  return SavedRanks::read(saved).status().message();
}

TEST(SavedRanks, ArraysThatAreMissingInAGroupAreNamed) {
  auto saved = saved_by(4, 2, kOwed);
  std::erase_if(saved[2], [](const StateArray& one) { return one.name == kHeld; });
  EXPECT_EQ(refusal(saved), "store: array 'w/feedback/residual' is missing on old rank 2");
  saved = saved_by(4, 2, kOwed);
  saved[3].push_back(array(kHeld, 1, kOwed));
  EXPECT_EQ(refusal(saved),
            "store: array 'w/feedback/residual' is on old rank 3 but not on old rank 1");
  saved = saved_by(6, 3, kOwed);
  for (const size_t rank : {1, 4}) saved[rank].push_back(array(kHeld, 1, kOwed));
  EXPECT_EQ(
      refusal(saved),
      "store: array 'w/feedback/residual' is on more than one rank of a group, and not on all");
  saved = saved_by(4, 1, kOwed);
  std::erase_if(saved[2], [](const StateArray& one) { return one.name == kHeld; });
  EXPECT_EQ(refusal(saved), "store: array 'w/feedback/residual' is missing on old rank 2");
}

TEST(SavedRanks, RanksOfOtherGroupsAreNamed) {
  auto saved = saved_by(4, 2, kOwed);
  saved[3].back() = inside_marker(4);
  EXPECT_THAT(refusal(saved), HasSubstr("the groups of old rank 3 are not those of 4 ranks"));
  saved = saved_by(4, 2, kOwed);
  saved.pop_back();
  EXPECT_THAT(refusal(saved), HasSubstr("are not those of 3 ranks"));
  for (const int inside : {0, -2}) {
    saved = saved_by(4, 2, kOwed);
    for (StateArrays& arrays : saved) arrays.back() = inside_marker(inside);
    EXPECT_THAT(refusal(saved), HasSubstr("the groups of old rank 0"));
  }
}

TEST(SavedRanks, OneStateAloneDoesNotGoOnInOtherGroups) {
  const std::vector<StateArrays> mine = {saved_by(4, 2, kOwed)[1]};
  Store store;
  EXPECT_TRUE(store.load(mine, 1, 4, 2));
  EXPECT_THAT(store.load(mine, 1, 4, 4).message(), HasSubstr("the states of all ranks do"));
}

}  // namespace
}  // namespace thinwire
