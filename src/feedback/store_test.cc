// The store: identity, round trips, resizing that keeps what is owed, and refusals that change
// nothing.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>

#include "core/random.h"

namespace thinwire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A residual owed to the mean and a counter of each rank's own.
class Memory final : public Stateful {
 public:
  explicit Memory(size_t count) : owed(count) {}
  StateArrays save() const override {
    return {make_state("owed", std::span<const float>(owed), OnResize::kOwedToMean),
            make_state("own/100%", std::span<const int64_t>(&own, 1), OnResize::kCopy)};
  }
  Status load(const StateArrays& arrays) override {
    std::vector<float> values(owed.size());
    if (Status status = copy_state(arrays, "owed", values); !status) return status;
    if (Status status = copy_state(arrays, "own/100%", std::span(&own, 1)); !status) return status;
    owed = values;
    return Status::ok();
  }
  std::vector<float> owed;
  int64_t own = 0;
};

class Other final : public Stateful {};

// One value on a device, which may fail.
class Remote final : public Stateful {
 public:
  StateArrays save() const override {
    return {make_state("owed", std::span<const float>(&owed, 1), OnResize::kOwedToMean)};
  }
  Status load(const StateArrays& arrays) override {
    if (fails) throw Error(ErrorCode::kIo, "device: it fell off the bus");
    return copy_state(arrays, "owed", std::span(&owed, 1));
  }
  float owed = 0;
  bool fails = false;
};

constexpr size_t kCount = 1001;

Memory& open(Store& store, const std::string& key, size_t count = kCount) {
  return store.open<Memory>(key, [=] { return std::make_unique<Memory>(count); });
}

// As thinwire wrote them before there were seals, which whoever writes arrays by hand has none of.
void unseal(std::vector<StateArrays>& saved) {
  for (StateArrays& arrays : saved) std::erase_if(arrays, is_seal);
}

// What `ranks` ranks hold under two keys, one of them a prefix of the other.
std::vector<StateArrays> save_of(int ranks) {
  std::vector<StateArrays> saved;
  for (int r = 0; r < ranks; ++r) {
    Store store;
    for (const uint32_t which : {0, 1}) {
      Memory& memory = open(store, which == 0 ? "w/residual" : "w");
      for (size_t i = 0; i < kCount; ++i)
        memory.owed[i] =
            random_normal({.seed = 9, .step = static_cast<uint64_t>(r), .stream = which}, i);
      memory.own = 10 * r + which;
    }
    saved.push_back(store.save());
  }
  return saved;
}

// Comparable: save() of equal stores lists equal arrays, in any order.
std::map<std::string, std::vector<std::byte>> contents(const Store& store) {
  std::map<std::string, std::vector<std::byte>> map;
  for (const StateArray& array : store.save()) map[array.name] = array.data;
  return map;
}

TEST(Store, AwaitsOwnersBeforeItSaves) {
  Store store;
  Memory& memory = store.open<Memory>("a", [] { return std::make_unique<Memory>(1); });
  int owner = 0, other = 0;
  store.before_save(&owner, [&] { memory.owed[0] = 2; });
  store.before_save(&other, [] { throw Error(ErrorCode::kPeerLost, "rank 1 is gone"); });
  EXPECT_THROW(store.save(), Error);
  store.before_save(&other, nullptr);
  const StateArrays saved = store.save();
  std::vector<float> owed(1);
  copy_state(saved, "a/owed", std::span<float>(owed)).or_throw();
  EXPECT_EQ(owed[0], 2);
  memory.owed[0] = 5;
  store.await_owners();
  EXPECT_EQ(memory.owed[0], 2);
  store.before_save(&owner, nullptr);
  memory.owed[0] = 3;
  store.save();
  EXPECT_EQ(memory.owed[0], 3);
}

// What changes in the background would change what was loaded.
TEST(Store, AwaitsOwnersBeforeItLoads) {
  Store store;
  Memory& memory = store.open<Memory>("a", [] { return std::make_unique<Memory>(1); });
  memory.owed[0] = 7;
  const std::vector<StateArrays> saved = {store.save()};
  int owner = 0, settled = 0;
  store.before_save(&owner, [&] {
    ++settled;
    memory.owed[0] = 2;
  });
  ASSERT_TRUE(store.load(saved, 0, 1));
  EXPECT_EQ(settled, 1);
  EXPECT_EQ(memory.owed[0], 7);
}

TEST(Store, AnObjectWhoseDeviceFailsLeavesTheOthersAsTheyWere) {
  Store store;
  Memory& before = open(store, "a");
  Remote& remote = store.open<Remote>("b", [] { return std::make_unique<Remote>(); });
  Memory& behind = open(store, "c");
  const auto hold = [&](float value) {
    before.owed.assign(kCount, value);
    behind.owed.assign(kCount, value);
    remote.owed = value;
  };
  hold(1);
  const std::vector<StateArrays> saved = {store.save()};
  const StateArrays owed = store.save_owed();
  hold(5);
  const auto expect_unchanged = [&] {
    EXPECT_EQ(before.owed, std::vector<float>(kCount, 5));
    EXPECT_EQ(remote.owed, 5);
    EXPECT_EQ(behind.owed, std::vector<float>(kCount, 5));
  };
  remote.fails = true;
  EXPECT_THROW(std::ignore = store.load(saved, 0, 1), Error);
  expect_unchanged();
  EXPECT_THROW(std::ignore = store.add_owed(owed), Error);
  expect_unchanged();
}

TEST(Store, TakesOverNoDebtThatNothingHereKeeps) {
  Store leaver, heir;
  Memory& owing = open(leaver, "w");
  open(leaver, "v").owed[0] = 7;
  Memory& own = open(heir, "v");
  EXPECT_TRUE(heir.add_owed(leaver.save_owed()))
      << "nothing is owed under the key that is not there";
  EXPECT_EQ(own.owed[0], 7);
  owing.owed[3] = 1;
  const Status refused = heir.add_owed(leaver.save_owed());
  EXPECT_EQ(refused.code(), ErrorCode::kMismatch);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("'w/owed'"));
  EXPECT_EQ(own.owed[0], 7);
}

TEST(Store, OpensOneObjectPerKey) {
  Store store;
  Memory& first = open(store, "a");
  EXPECT_EQ(&open(store, "a"), &first);
  EXPECT_NE(&open(store, "b"), &first);
  EXPECT_THROW(store.open<Other>("a", [] { return std::make_unique<Other>(); }), Error);
}

TEST(Store, DropForgetsOpenAndWaiting) {
  Store store;
  ASSERT_TRUE(store.load(save_of(1), 0, 1));
  open(store, "w").own = 77;
  store.drop("w");
  store.drop("w/residual");
  EXPECT_TRUE(store.save().empty());
  EXPECT_TRUE(store.unclaimed().empty());
  EXPECT_EQ(open(store, "w").own, 0);
}

TEST(Store, NamesAreKeysThenArrays) {
  std::vector<std::string> names;
  const auto saved = save_of(1);
  for (const auto& array : saved[0]) names.push_back(array.name);
  EXPECT_THAT(names, ElementsAre("w/owed", "w/own%2F100%25", "w/residual/owed",
                                 "w/residual/own%2F100%25", "thinwire/seal/xxh3"));
}

TEST(Store, SameSizeRoundTripIsExact) {
  const auto saved = save_of(3);
  for (int rank = 0; rank < 3; ++rank) {
    Store store;
    ASSERT_TRUE(store.load(saved, rank, 3));
    EXPECT_THAT(store.unclaimed(), ElementsAre("w", "w/residual"));
    const auto waiting = contents(store);
    EXPECT_EQ(open(store, "w/residual").own, 10 * rank);
    EXPECT_THAT(store.unclaimed(), ElementsAre("w"));
    EXPECT_EQ(open(store, "w").own, 10 * rank + 1);
    EXPECT_TRUE(store.unclaimed().empty());
    EXPECT_EQ(contents(store), waiting);  // opened or not, the same is saved again
    for (const StateArray& array : saved[rank]) EXPECT_EQ(waiting.at(array.name), array.data);
    EXPECT_EQ(waiting.size(), saved[rank].size());
  }
}

TEST(Store, ResizeKeepsWhatIsOwedToTheMean) {
  for (const int from : {1, 2, 3, 5})
    for (const int to : {1, 2, 4, 7}) {
      if (from == to) continue;
      SCOPED_TRACE(std::to_string(from) + " to " + std::to_string(to));
      const auto saved = save_of(from);
      std::vector<float> first;
      for (int rank = 0; rank < to; ++rank) {
        Store store;
        ASSERT_TRUE(store.load(saved, rank, to));
        const Memory& memory = open(store, "w");
        EXPECT_EQ(memory.own, 10 * (rank % from) + 1);
        for (size_t i = 0; i < kCount; ++i) {
          double sum = 0;
          for (int r = 0; r < from; ++r)
            sum += random_normal({.seed = 9, .step = static_cast<uint64_t>(r), .stream = 1}, i);
          ASSERT_EQ(memory.owed[i], static_cast<float>(sum / from)) << i;
        }
        if (rank == 0) first = memory.owed;
        EXPECT_EQ(memory.owed, first);
      }
    }
}

// A piece of something that the ranks share.
class Piece final : public Stateful {
 public:
  StateArrays save() const override {
    return {make_state("piece", std::span<const float>(values), OnResize::kJoin)};
  }
  Status load(const StateArrays& arrays) override {
    values.resize(arrays.at(0).data.size() / sizeof(float));
    return copy_state(arrays, "piece", values);
  }
  std::vector<float> values;
};

TEST(Store, ResizeJoinsPiecesInRankOrder) {
  std::vector<StateArrays> saved;
  for (const std::vector<float>& piece : {std::vector<float>{1, 2}, {}, {3}}) {
    Store store;
    store.open<Piece>("w", [] { return std::make_unique<Piece>(); }).values = piece;
    saved.push_back(store.save());
  }
  for (const int size : {1, 2, 3, 4})
    for (int rank = 0; rank < size; ++rank) {
      Store store;
      ASSERT_TRUE(store.load(saved, rank, size));
      const auto& values = store.open<Piece>("w", [] { return std::make_unique<Piece>(); }).values;
      if (size != 3) {
        EXPECT_THAT(values, ElementsAre(1, 2, 3));
      } else {
        EXPECT_EQ(values.size(), (std::vector<size_t>{2, 0, 1}[static_cast<size_t>(rank)]));
      }
    }
  unseal(saved);
  saved[1][0].shape = {0, 2};
  Store store;
  const Status status = store.load(saved, 0, 2);
  EXPECT_EQ(status.code(), ErrorCode::kMismatch);
  EXPECT_THAT(status.message(), HasSubstr("one-dimensional"));
}

TEST(Store, WhatAnotherRankTookOverIsOwedNoMore) {
  Store store;
  Memory& memory = open(store, "a");
  memory.owed.assign(kCount, 3);
  memory.own = 8;
  store.open<Piece>("b", [] { return std::make_unique<Piece>(); }).values = {1, 2};
  store.drop_owed();
  EXPECT_EQ(memory.owed, std::vector<float>(kCount, 0));
  EXPECT_EQ(memory.own, 8);
  EXPECT_TRUE(store.open<Piece>("b", nullptr).values.empty());
}

// What all ranks share, here a number.
class Shared final : public Stateful {
 public:
  StateArrays save() const override {
    return {make_state("number", std::span<const double>(&number, 1), OnResize::kShared)};
  }
  Status load(const StateArrays& arrays) override {
    return copy_state(arrays, "number", std::span(&number, 1));
  }
  double number = 0.1;
};

TEST(Store, ResizeKeepsWhatIsSharedAndNamesTheOldRankThatHasAnother) {
  const auto made = [] { return std::make_unique<Shared>(); };
  std::vector<StateArrays> saved;
  for (int old = 0; old < 3; ++old) {
    Store store;
    store.open<Shared>("w", made);
    saved.push_back(store.save());
  }
  for (const int size : {1, 2, 7}) {
    Store store;
    ASSERT_TRUE(store.load(saved, size - 1, size));
    EXPECT_EQ(store.open<Shared>("w", made).number, 0.1);
  }
  unseal(saved);
  for (const size_t odd : {0, 1, 2}) {
    std::vector<StateArrays> bad = saved;
    bad[odd][0].data[3] ^= std::byte{1};
    Store store;
    const Status status = store.load(bad, 0, 2);
    EXPECT_EQ(status.code(), ErrorCode::kMismatch);
    EXPECT_THAT(status.message(),
                HasSubstr("'w/number', which all ranks share, is another one on old rank " +
                          std::to_string(odd)));
    EXPECT_TRUE(store.save().empty());
  }
}

TEST(Store, AFlippedBitIsFoundAndChangesNothing) {
  for (const size_t ranks : {1, 3}) {
    const auto saved = save_of(static_cast<int>(ranks));
    Store store;
    open(store, "w").own = 7;
    const auto before = contents(store);
    for (size_t array = 0; array < saved[0].size(); ++array) {
      auto bad = saved;
      bad[ranks - 1][array].data[1] ^= std::byte{64};
      const Status status = store.load(bad, 0, 3);
      EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
      EXPECT_THAT(status.message(), HasSubstr("damaged: array '"));
      EXPECT_THAT(status.message(),
                  HasSubstr(ranks == 3 ? "store: old rank 2: " : "store: the saved state is"));
      EXPECT_EQ(contents(store), before);
    }
    auto earlier = saved;
    unseal(earlier);
    earlier[0][0].data[1] ^= std::byte{64};  // nobody knows
    EXPECT_TRUE(store.load(earlier, 0, 3));
  }
}

TEST(Store, LoadReachesOpenObjects) {
  Store store;
  Memory& memory = open(store, "w");
  open(store, "elsewhere").own = 5;
  ASSERT_TRUE(store.load(save_of(2), 1, 2));
  EXPECT_EQ(memory.own, 11);
  EXPECT_EQ(memory.owed[3], random_normal({.seed = 9, .step = 1, .stream = 1}, 3));
  EXPECT_EQ(open(store, "elsewhere").own, 5);
  EXPECT_THAT(store.unclaimed(), ElementsAre("w/residual"));
}

TEST(Store, StateThatDoesNotFitIsRefusedByNameAtOpen) {
  Store store;
  ASSERT_TRUE(store.load(save_of(1), 0, 1));
  try {
    open(store, "w", kCount + 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMismatch);
    EXPECT_THAT(error.what(), HasSubstr("'w'"));
  }
  EXPECT_THAT(store.unclaimed(), ElementsAre("w", "w/residual"));
}

TEST(Store, AnOpenObjectThatRefusesUndoesTheWholeLoad) {
  Store store;
  open(store, "w").own = 7;                       // fits, and is loaded first
  open(store, "w/residual", kCount + 1).own = 8;  // does not fit
  const auto before = contents(store);
  EXPECT_EQ(store.load(save_of(1), 0, 1).code(), ErrorCode::kMismatch);
  EXPECT_EQ(contents(store), before);
  EXPECT_TRUE(store.unclaimed().empty());
}

TEST(Store, ContradictionsAreRefusedAndChangeNothing) {
  Store store;
  open(store, "w").own = 7;
  ASSERT_TRUE(
      store.load({{make_state("kept/x", std::span<const float>(), OnResize::kCopy)}}, 0, 1));
  const auto before = contents(store);
  const auto expect_refused = [&](const std::vector<StateArrays>& saved, std::string_view why) {
    for (const int size : {static_cast<int>(saved.size()), 5}) {
      const Status status = store.load(saved, 0, std::max(size, 1));
      EXPECT_EQ(status.code(), ErrorCode::kMismatch) << why;
      EXPECT_THAT(status.message(), HasSubstr(std::string(why)));
      EXPECT_EQ(contents(store), before) << why;
    }
  };
  const auto unsealed = [](int ranks) {
    auto saved = save_of(ranks);
    unseal(saved);
    return saved;
  };
  expect_refused({}, "no saved states");
  auto saved = unsealed(3);
  saved[1].pop_back();
  expect_refused(saved, "missing on old rank 1");
  saved = unsealed(3);
  saved[2].push_back(make_state("w/more", std::span<const float>(), OnResize::kCopy));
  expect_refused(saved, "on old rank 2 but not");
  saved = unsealed(3);
  saved[1][0].type = StateType::kFloat64;
  saved[1][0].data.resize(kCount * 8);
  expect_refused(saved, "type of array 'w/owed' on old rank 1");
  saved = unsealed(3);
  saved[1][1].on_resize = OnResize::kOwedToMean;
  expect_refused(saved, "not of floats");
  saved = unsealed(3);
  saved[2][0].shape = {kCount - 1};
  saved[2][0].data.resize((kCount - 1) * 4);
  expect_refused(saved, "shape of array 'w/owed' on old rank 2");
  saved = unsealed(3);
  saved[0].push_back(saved[0][0]);
  expect_refused(saved, "there twice");
  saved = unsealed(3);
  saved[1][0].data.pop_back();
  expect_refused(saved, "its shape needs");
  saved = unsealed(3);
  saved[1][0].shape = {uint64_t{1} << 63, 4};
  expect_refused(saved, "too large");
  saved = unsealed(1);
  saved[0][0].name = "owed";
  expect_refused(saved, "has no key");
}

TEST(Store, RanksOutsideTheWorldAreBrokenContracts) {
  Store store;
  EXPECT_THROW((void)store.load(save_of(1), 1, 1), Error);
  EXPECT_THROW((void)store.load(save_of(1), -1, 1), Error);
}

}  // namespace
}  // namespace thinwire
