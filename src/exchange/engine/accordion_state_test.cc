// Tests of accordions in an exchange: saved states, skipped steps, absent ranks, ranks that differ.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exchange/testing/accordion_runs.h"
#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Steps [first, first + steps) of all ranks, which go on from the states `from`, if there are some.
std::vector<StateArrays> run(const AccordionCase& one, const std::vector<StateArrays>& from,
                             uint64_t first, uint64_t steps, std::vector<Tensors>& means) {
  constexpr int kRanks = 4;
  std::vector<StateArrays> saved(kRanks);
  run_local(kRanks, [&](Group& group) {
    const auto model = accordion_model();
    const auto store = std::make_shared<Store>();
    if (!from.empty()) store->load(from, group.rank(), kRanks, one.inside).or_throw();
    ExchangeOptions options = accordion_options(one);
    options.first_step = first;
    Side side(group, model, options, store);
    EXPECT_THAT(store->unclaimed(), IsEmpty());
    for (uint64_t step = first; step < first + steps; ++step) {
      accordion_step(side, accordion_gradients(model, group.rank(), step));
      if (group.rank() == 0) means.push_back(side.values);
    }
    saved[static_cast<size_t>(group.rank())] = store->save();
  });
  return saved;
}

// Whether the regimes of all ranks are those of this rank, to the bit.
bool same_regimes(Group& group, Side& side) {
  uint64_t sum = 0;
  for (const StateArray& array : side.store().save())
    if (array.name.find("/regime/") != std::string::npos) sum = sum * 31 + checksum(array.data);
  return same_on_all_ranks(group, sum);
}

// To the bit, from the middle of windows and between them; encoders of both regimes included.
TEST(AccordionState, AResumedRunGoesOnToTheBit) {
  constexpr uint64_t kSteps = 15;
  for (const AccordionCase& one : accordion_cases()) {
    std::vector<Tensors> whole;
    const auto all = run(one, {}, 0, kSteps, whole);
    for (const uint64_t half : {1, 5, 7, 8, 11}) {
      std::vector<Tensors> means;
      const auto saved = run(one, {}, 0, half, means);
      const auto rest = run(one, saved, half, kSteps - half, means);
      for (size_t step = 0; step < kSteps; ++step)
        EXPECT_TRUE(same_bits(means[step], whole[step])) << one.codec << ' ' << half << ' ' << step;
      for (size_t rank = 0; rank < all.size(); ++rank)
        EXPECT_TRUE(same_state(rest[rank], all[rank])) << one.codec << ' ' << half;
    }
  }
}

// All ranks hold the same, so new ranks take it from any; the norms of later windows are those of
// the mean.
TEST(AccordionState, RegimesOutliveOtherNumbersOfRanks) {
  for (AccordionCase one : accordion_cases()) {
    if (one.inside > 1) continue;
    std::vector<Tensors> means;
    const auto saved = run(one, {}, 0, 7, means);
    for (const auto& [ranks, inside] : {std::pair(2, 1), {3, 1}, {6, 1}, {4, 2}})
      run_local(ranks, [&, ranks = ranks, inside = inside](Group& group) {
        const auto model = accordion_model();
        const auto store = std::make_shared<Store>();
        store->load(saved, group.rank(), ranks, inside).or_throw();
        ExchangeOptions options = accordion_options(one);
        options.inside = inside;
        options.first_step = 7;
        Side side(group, model, options, store);
        for (const StreamSpec& stream : side.exchange().streams()) {
          if (stream.name.starts_with("dense:")) continue;
          int64_t before[4] = {}, now[4] = {};
          EXPECT_TRUE(copy_state(saved[0], stream.name + "/regime/counts", before));
          EXPECT_TRUE(copy_state(store->save(), stream.name + "/regime/counts", now));
          EXPECT_TRUE(std::equal(before, before + 4, now)) << one.codec << ' ' << ranks;
        }
        EXPECT_FALSE(accordion_step(side, accordion_gradients(model, group.rank(), 7)).skipped);
      });
  }
}

// A step that is skipped adds nothing, not even time.
TEST(AccordionState, ASkippedStepLeavesNoTrace) {
  for (const AccordionCase& one : accordion_cases())
    run_local(4, [&](Group& group) {
      const auto model = accordion_model();
      Side bumpy(group, model, accordion_options(one)),
          smooth(group, model, accordion_options(one));
      uint64_t number = 0;
      for (uint64_t step = 0; step < 12; ++step) {
        if (step % 2 == 1) {
          Tensors bad = accordion_gradients(model, group.rank(), step);
          if (group.rank() == 1) bad[2][3] = std::numeric_limits<float>::quiet_NaN();
          const StateArrays before = bumpy.store().save();
          EXPECT_TRUE(accordion_step(bumpy, std::move(bad)).skipped);
          EXPECT_TRUE(same_state(bumpy.store().save(), before)) << one.codec;
          smooth.exchange().set_step(++number);  // draws depend on it
        }
        accordion_step(bumpy, accordion_gradients(model, group.rank(), step));
        accordion_step(smooth, accordion_gradients(model, group.rank(), step));
        ++number;
        EXPECT_TRUE(same_bits(bumpy.values, smooth.values)) << one.codec << ' ' << step;
      }
      EXPECT_TRUE(same_state(bumpy.store().save(), smooth.store().save())) << one.codec;
    });
}

// A rank that sits out is delivered the mean, too.
TEST(AccordionState, RanksThatSitOutDecideAlike) {
  for (const AccordionCase& one : accordion_cases()) {
    if (one.inside > 1) continue;
    run_local(3, [&](Group& group) {
      const auto model = accordion_model();
      ExchangeOptions options = accordion_options(one);
      options.weighted = true;
      Side side(group, model, options);
      for (uint64_t step = 0; step < 12; ++step) {
        if (step % 3 == static_cast<uint64_t>(group.rank()) && step % 2 == 0)
          side.exchange().abstain(Abstention::kSitsOut);
        accordion_step(side, accordion_gradients(model, group.rank(), step));
        ASSERT_TRUE(same_regimes(group, side)) << one.codec << ' ' << step;
      }
    });
  }
}

// A rank that did not load its state would decide by itself.
TEST(AccordionState, RegimesThatDifferAreFoundWhenAnExchangeIsMade) {
  const AccordionCase one{"topk:density=accordion(0.5;0.1;0.5;2)"};
  run_local(3, [&](Group& group) {
    const auto model = accordion_model();
    Side side(group, model, accordion_options(one));
    accordion_step(side, accordion_gradients(model, group.rank(), 0));
    const auto store = std::make_shared<Store>();
    if (group.rank() != 1)
      store->load(std::vector(3, side.store().save()), group.rank(), 3).or_throw();
    const std::string error = error_of([&] { Side(group, model, accordion_options(one), store); });
    EXPECT_THAT(error, AllOf(HasSubstr("/regime/"),
                             HasSubstr("is not on rank 1 what it is on most ranks")));
  });
}

}  // namespace
}  // namespace thinwire::testing
