// Tests of saved states of hierarchies: they go on to the bit, and other groups owe the same.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

struct Ranks {
  int ranks, inside;
};

// The names and lengths of all streams.
std::vector<std::pair<std::string, size_t>> streams_of(Grouping grouping) {
  std::vector<std::pair<std::string, size_t>> streams;
  size_t total = 0;
  for (const TensorSpec& tensor : small_model()) {
    streams.emplace_back(tensor.name, tensor.count());
    total += tensor.count();
  }
  if (grouping == Grouping::kModel) streams = {{"model", total}};
  return streams;
}

// What is owed to the mean, by stream: the mean over the ranks that hold it.
Tensors owed(const std::vector<StateArrays>& saved, Grouping grouping) {
  Tensors owed;
  for (const auto& [name, count] : streams_of(grouping)) {
    Values sum(count), one(count);
    float holders = 0;
    for (const StateArrays& arrays : saved)
      if (copy_state(arrays, name + "/feedback/residual", std::span(one))) {
        ++holders;
        for (size_t i = 0; i < one.size(); ++i) sum[i] += one[i];
      }
    for (float& value : sum) value /= std::max(1.0f, holders);
    owed.push_back(std::move(sum));
  }
  return owed;
}

std::vector<StateArrays> run(int ranks, const ExchangeOptions& options,
                             const std::vector<StateArrays>& from, uint64_t first_step,
                             uint64_t steps, std::vector<Tensors>* means = nullptr) {
  std::vector<StateArrays> saved(static_cast<size_t>(ranks));
  run_local(ranks, [&](Group& group) {
    const auto store = std::make_shared<Store>();
    if (!from.empty()) store->load(from, group.rank(), group.size(), options.inside).or_throw();
    Side side(group, small_model(), options, store);
    EXPECT_TRUE(store->unclaimed().empty());
    for (uint64_t step = first_step; step < first_step + steps; ++step) {
      side.step(step);
      if (means != nullptr && group.rank() == 0) means->push_back(side.values);
    }
    saved[static_cast<size_t>(group.rank())] = store->save();
  });
  return saved;
}

TEST(LevelsState, AResumedRunGoesOnToTheBit) {
  for (const char* codec : {"topk:density=0.1", "int8", "powersgd:rank=2", "sidco:density=0.1",
                            "topk:density=0.1, global"}) {
    ExchangeOptions options{.codec = codec, .feedback = "residual", .inside = 2};
    if (options.codec.ends_with(", global")) {
      options.codec.resize(options.codec.find(','));
      options.grouping = Grouping::kGlobal;
    }
    std::vector<Tensors> whole, first, second;
    const auto all = run(4, options, {}, 0, 6, &whole);
    const auto half = run(4, options, {}, 0, 3, &first);
    const auto rest = run(4, options, half, 3, 3, &second);
    first.insert(first.end(), second.begin(), second.end());
    for (size_t step = 0; step < whole.size(); ++step)
      EXPECT_TRUE(same_bits(whole[step], first[step])) << codec << ", step " << step;
    for (size_t rank = 0; rank < all.size(); ++rank)
      EXPECT_TRUE(same_state(all[rank], rest[rank])) << codec;
  }
}

TEST(LevelsState, WhatIsOwedOutlivesOtherRanksAndGroups) {
  constexpr Ranks kRuns[] = {{2, 1}, {4, 1}, {4, 2}, {4, 4}, {8, 1}, {8, 2}, {8, 4}, {6, 3}};
  for (const Grouping grouping : {Grouping::kTensor, Grouping::kModel, Grouping::kGlobal})
    for (const Ranks before : kRuns)
      for (const Ranks after : kRuns) {
        ExchangeOptions options{.codec = "topk:density=0.1",
                                .method = "gather",
                                .inside = before.inside,
                                .grouping = grouping,
                                .dense_kinds = {}};
        const auto saved = run(before.ranks, options, {}, 0, 2);
        options.inside = after.inside;
        const auto loaded = run(after.ranks, options, saved, 2, 0);
        const Tensors old_debt = owed(saved, grouping), new_debt = owed(loaded, grouping);
        for (size_t t = 0; t < old_debt.size(); ++t)
          for (size_t i = 0; i < old_debt[t].size(); ++i)
            EXPECT_NEAR(new_debt[t][i], old_debt[t][i], 1e-7)
                << before.ranks << " in " << before.inside << " to " << after.ranks << " in "
                << after.inside << ", stream " << t;
      }
}

// Owners keep what they could not hand out; the sum of it is owed to the mean as it is.
TEST(LevelsState, WhatOwnersOweOutlivesOtherRanksAndGroups) {
  constexpr Ranks kRuns[] = {{2, 1}, {4, 1}, {4, 2}, {8, 2}, {8, 4}};
  const auto owners = [](const std::vector<StateArrays>& saved) {
    Tensors all;
    for (const TensorSpec& tensor : small_model()) {
      Values sum(tensor.count());
      for (const StateArrays& arrays : saved)
        if (const auto one = owed_by_owner(arrays, tensor.name, tensor.count()))
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += (*one)[i];
      all.push_back(std::move(sum));
    }
    return all;
  };
  for (const Ranks before : kRuns)
    for (const Ranks after : kRuns) {
      ExchangeOptions options{.codec = "topk:density=0.1",
                              .method = "sparse-reduce",
                              .inside = before.inside,
                              .dense_kinds = {}};
      const auto saved = run(before.ranks, options, {}, 0, 2);
      options.inside = after.inside;
      const auto loaded = run(after.ranks, options, saved, 2, 0);
      EXPECT_TRUE(same_bits(owners(saved), owners(loaded)))
          << before.ranks << " in " << before.inside << " to " << after.ranks << " in "
          << after.inside;
    }
}

TEST(LevelsState, AStoreOfOtherGroupsIsRefused) {
  run_local(4, [](Group& group) {
    const auto store = std::make_shared<Store>();
    const ExchangeOptions options{.codec = "topk:density=0.1"};
    ExchangeOptions of_two = options;
    of_two.inside = 2;
    { Side(group, small_model(), options, store).step(0); }
    EXPECT_THAT(error_of([&] { Side(group, small_model(), of_two, store); }),
                HasSubstr("belongs to an exchange with inside = 1, not 2"));
  });
}

}  // namespace
}  // namespace thinwire::testing
