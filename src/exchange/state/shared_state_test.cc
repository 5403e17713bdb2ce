// Tests of state that all ranks hold alike: a resumed exchange has it, a rank that differs is
// named.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/shared_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr uint64_t kSteps = 3;

struct Kind {
  std::string codec, feedback, method;
  std::set<std::string> shared;  // arrays of each stream
  std::string combine = "mean";
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"topk:density=0.2", "ef21", "auto", {"feedback/mean_estimate"}},
      {"int8", "ef21", "auto", {"feedback/mean_estimate"}},
      {"powersgd", "auto", "auto", {"encoder/q", "encoder/rank"}},
      {"powersgd:alternate=true", "auto", "auto", {"encoder/p", "encoder/q", "encoder/rank"}},
      {"int8", "auto", "auto", {"kept/kept"}, "centred_clipping:tau=0.1"},
      {"fp32", "auto", "auto", {"kept/kept"}, "licm"},
  };
  return all;
}

ExchangeOptions options_of(const Kind& kind) {
  return {.codec = kind.codec,
          .feedback = kind.feedback,
          .method = kind.method,
          .combine = kind.combine};
}

std::vector<StateArrays> saved_after_steps(const Kind& kind, int ranks, int inside = 1) {
  std::vector<StateArrays> saved(static_cast<size_t>(ranks));
  run_local(ranks, [&](Group& group) {
    ExchangeOptions options = options_of(kind);
    options.inside = inside;
    Side side(group, small_model(), options);
    for (uint64_t step = 0; step < kSteps; ++step) side.step(step);
    saved[static_cast<size_t>(group.rank())] = side.store().save();
  });
  return saved;
}

// What every rank is told when it goes on with its own of these; empty where all is well.
std::vector<std::string> resumed_with(const Kind& kind, const std::vector<StateArrays>& saved,
                                      int inside = 1) {
  std::vector<std::string> messages(saved.size());
  run_local(static_cast<int>(saved.size()), [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    auto store = std::make_shared<Store>();
    if (!saved[rank].empty())
      store->load({saved[rank]}, group.rank(), group.size(), inside).or_throw();
    ExchangeOptions options = options_of(kind);
    options.inside = inside;
    options.first_step = kSteps;
    try {
      Side side(group, small_model(), options, store);
      EXPECT_FALSE(side.step(kSteps).skipped);
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMismatch);
      messages[rank] = error.what();
    }
  });
  return messages;
}

bool is_shared(const StateArray& array) { return array.on_resize == OnResize::kShared; }
bool has_shared_values(const StateArray& array) {
  return is_shared(array) && array.type == StateType::kFloat32 && !array.data.empty();
}

TEST(SharedState, IsAlikeOnAllRanksAfterSteps) {
  for (const Kind& kind : kinds())
    for (const int ranks : {1, 2, 5}) {
      SCOPED_TRACE(kind.codec + " at " + std::to_string(ranks));
      const auto saved = saved_after_steps(kind, ranks);
      std::set<std::string> names;
      for (const StateArrays& arrays : saved)
        for (size_t i = 0; i < arrays.size(); ++i) {
          if (!is_shared(arrays[i])) continue;
          EXPECT_EQ(arrays[i].data, saved[0][i].data) << arrays[i].name;
          names.insert(arrays[i].name.substr(arrays[i].name.find('/') + 1));
        }
      EXPECT_EQ(names, kind.shared);
      EXPECT_THAT(resumed_with(kind, saved), Each(""));
    }
}

// By gather each rank finds factors of its own.
TEST(SharedState, FactorsThatRanksDidNotAgreeOnAreTheirOwn) {
  const Kind kind{"powersgd", "auto", "gather", {}};
  const auto saved = saved_after_steps(kind, 3);
  for (const StateArrays& arrays : saved)
    EXPECT_FALSE(std::any_of(arrays.begin(), arrays.end(), is_shared));
  EXPECT_THAT(resumed_with(kind, saved), Each(""));
}

TEST(SharedState, TheRankWithOneFlippedBitIsNamedOnAll) {
  for (const Kind& kind : kinds())
    for (const size_t ranks : {2, 3})
      for (size_t odd = 0; odd < ranks; ++odd) {
        auto saved = saved_after_steps(kind, static_cast<int>(ranks));
        for (StateArrays& arrays : saved) std::erase_if(arrays, is_seal);
        const auto shared = std::find_if(saved[odd].rbegin(), saved[odd].rend(), has_shared_values);
        shared->data[shared->data.size() / 2] ^= std::byte{1};
        const auto messages = resumed_with(kind, saved);
        EXPECT_THAT(messages, Each(HasSubstr("'" + shared->name + "', which all ranks share")));
        const std::string named = ranks == 2
                                      ? "rank 1 what it is on rank 0"
                                      : "rank " + std::to_string(odd) + " what it is on most ranks";
        EXPECT_THAT(messages, Each(HasSubstr(named)));
      }
}

// By its number among all ranks. It shares the state with the ranks of its place in other groups.
TEST(SharedState, InAHierarchyTheRankThatDiffersIsNamedOnAll) {
  const Kind& powersgd = kinds()[2];
  for (const int inside : {2, 3}) {
    auto saved = saved_after_steps(powersgd, 3 * inside, inside);
    EXPECT_THAT(resumed_with(powersgd, saved, inside), Each(""));
    const auto odd = std::find_if(saved.rbegin(), saved.rend(), [](const StateArrays& arrays) {
      return std::any_of(arrays.begin(), arrays.end(), has_shared_values);
    });
    std::erase_if(*odd, is_seal);
    std::find_if(odd->begin(), odd->end(), has_shared_values)->data[0] ^= std::byte{1};
    const auto rank = std::to_string(saved.rend() - odd - 1);
    EXPECT_THAT(resumed_with(powersgd, saved, inside),
                Each(HasSubstr("is not on rank " + rank + " what it is on most ranks")));
  }
}

TEST(SharedState, ARankThatLoadedNothingIsNamed) {
  for (const Kind& kind : kinds()) {
    auto saved = saved_after_steps(kind, 3);
    saved[2].clear();
    EXPECT_THAT(resumed_with(kind, saved), Each(HasSubstr("is not on rank 2 what it is")))
        << kind.codec;
  }
}

// One that never took part has the first factors, which nobody agreed on either.
TEST(SharedState, ARankThatSatOutHasFactorsOfItsOwnAsTheOthersHave) {
  ExchangeOptions options{.codec = "powersgd", .method = "gather", .weighted = true};
  std::vector<StateArrays> saved(3);
  run_local(3, [&](Group& group) {
    Side side(group, small_model(), options);
    for (uint64_t step = 0; step < 2; ++step) {
      if (group.rank() == 2) side.exchange().abstain(Abstention::kSitsOut);
      side.step(step);
    }
    saved[static_cast<size_t>(group.rank())] = side.store().save();
  });
  for (const int ranks : {2, 3})
    run_local(ranks, [&](Group& group) {
      auto store = std::make_shared<Store>();
      store->load(saved, group.rank(), ranks).or_throw();
      ExchangeOptions on = options;
      on.first_step = 2;
      Side side(group, small_model(), on, store);
      EXPECT_FALSE(side.step(2).skipped);
    });
}

}  // namespace
}  // namespace thinwire::testing
