// Tests of CriticalRegime: when a stream enters and leaves it, and its state in the middle of a
// window.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/critical_regime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace thinwire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kValues = 3;

// A step in which means of five times this norm arrive, exactly.
void step(CriticalRegime& regime, float norm) {
  const std::vector<float> mean = {0, -3 * norm, 4 * norm};
  regime.add(std::span(mean).first(1), 0);
  regime.add(std::span(mean).subspan(1), 1);
  regime.end_step();
}

// Whether the regime is critical after each interval, in all steps of which the norm is that of the
// interval.
std::vector<bool> after(CriticalRegime& regime, uint64_t interval,
                        const std::vector<float>& norms) {
  std::vector<bool> critical;
  for (const float norm : norms) {
    const bool before = regime.critical();
    for (uint64_t i = 0; i < interval; ++i) {
      EXPECT_EQ(regime.critical(), before) << "in the middle of an interval";
      step(regime, norm);
    }
    critical.push_back(regime.critical());
  }
  return critical;
}

// One window per interval: the first interval leaves nothing to compare with.
std::vector<bool> after(const std::vector<float>& norms, double eta = 0.5) {
  CriticalRegime regime(kValues, eta, 2, 2);
  EXPECT_TRUE(regime.critical());
  return after(regime, 2, norms);
}

TEST(CriticalRegime, ConstantNormsLeaveItAfterTheFirstInterval) {
  for (const auto& [interval, window] : {std::pair<uint64_t, uint64_t>{4, 2}, {20, 2}, {2, 1}}) {
    CriticalRegime regime(kValues, 0.5, interval, window);
    EXPECT_TRUE(regime.critical());
    EXPECT_THAT(after(regime, interval, {3, 3, 3}), ElementsAre(false, false, false)) << interval;
  }
}

TEST(CriticalRegime, OneWindowAnIntervalTakesTwoToCompare) {
  EXPECT_THAT(after({3, 3, 3}), ElementsAre(true, false, false));
  CriticalRegime overlapping(kValues, 0.5, 3, 2);
  EXPECT_THAT(after(overlapping, 3, {3, 3}), ElementsAre(true, false));
}

TEST(CriticalRegime, AZeroNormEntersItAndCountsAsCriticalAfterwards) {
  EXPECT_THAT(after({3, 3, 0, 3, 3}), ElementsAre(true, false, true, true, false));
  EXPECT_THAT(after({0, 0, 0}), ElementsAre(true, true, true));
}

// By eta of the norm before, or more.
TEST(CriticalRegime, AChangeOfTheNormEntersIt) {
  EXPECT_THAT(after({4, 4, 2, 2}), ElementsAre(true, false, true, false));
  EXPECT_THAT(after({4, 4, 2.5f, 1}), ElementsAre(true, false, false, true));
  EXPECT_THAT(after({4, 4, 6, 6}), ElementsAre(true, false, true, false));
  EXPECT_THAT(after({4, 4, 5.5f, 5.5f}), ElementsAre(true, false, false, false));
  EXPECT_THAT(after({4, 5, 4}, 0.25), ElementsAre(true, true, false));
}

// It is the norm of a sum: means that cancel have none.
TEST(CriticalRegime, MeansAreAddedUp) {
  CriticalRegime regime(kValues, 0.5, 2, 2);
  EXPECT_THAT(after(regime, 2, {3, 3}), ElementsAre(true, false));
  step(regime, 3);
  step(regime, -3);
  EXPECT_TRUE(regime.critical());
}

TEST(CriticalRegime, OnlyWindowsCount) {
  CriticalRegime regime(kValues, 0.5, 5, 2);
  for (const float norm : {1, 1, 90, 1, 1}) step(regime, norm);
  EXPECT_FALSE(regime.critical());
  for (const float norm : {90, 90, 90, 1, 1}) step(regime, norm);
  EXPECT_FALSE(regime.critical());
  for (const float norm : {1, 1, 1, 1, 9}) step(regime, norm);
  EXPECT_TRUE(regime.critical());
}

TEST(CriticalRegime, TheSumIsThereDuringAWindowOnly) {
  CriticalRegime regime(kValues, 0.5, 5, 2);
  std::vector<bool> holds;
  for (int i = 0; i < 10; ++i) {
    step(regime, 1);
    holds.push_back(!regime.save().back().data.empty());
  }
  EXPECT_THAT(holds,
              ElementsAre(true, false, false, true, false, false, false, false, true, false));
}

TEST(CriticalRegime, SumsBeyondTheLargestFloatAreCritical) {
  CriticalRegime regime(kValues, 0.5, 2, 2);
  EXPECT_THAT(after(regime, 2, {3, 3}), ElementsAre(true, false));
  const float most = std::numeric_limits<float>::max() / 4;
  EXPECT_THAT(after(regime, 2, {most, most, 3, 3}), ElementsAre(true, true, true, false));
}

TEST(CriticalRegime, ASavedOneGoesOnAlike) {
  const float norms[] = {4, 4, 3, 4, 1, 1, 2, 1, 9, 9, 9, 9};
  for (size_t saved = 0; saved < std::size(norms); ++saved) {
    CriticalRegime whole(kValues, 0.5, 3, 2);
    for (size_t i = 0; i < saved; ++i) step(whole, norms[i]);
    CriticalRegime resumed(kValues, 0.5, 3, 2);
    EXPECT_TRUE(resumed.load(whole.save()));
    for (size_t i = saved; i < std::size(norms); ++i) {
      EXPECT_EQ(resumed.critical(), whole.critical()) << saved << ' ' << i;
      step(whole, norms[i]);
      step(resumed, norms[i]);
    }
    const StateArrays a = whole.save(), b = resumed.save();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].data, b[i].data) << a[i].name;
  }
}

// The norm of a window of another length says nothing about this one's.
TEST(CriticalRegime, WithOtherIntervalsTheRegimeGoesOnAndNormsStartAfresh) {
  CriticalRegime before(kValues, 0.5, 2, 2), then(kValues, 0.5, 3, 3);
  EXPECT_THAT(after(before, 2, {3, 3}), ElementsAre(true, false));
  step(before, 3);
  EXPECT_TRUE(then.load(before.save()));
  EXPECT_FALSE(then.critical());
  EXPECT_THAT(after(then, 3, {90, 90, 1}), ElementsAre(false, false, true));
}

TEST(CriticalRegime, StatesThatDoNotFitAreRefused) {
  CriticalRegime saved(kValues, 0.5, 2, 2), other(kValues + 1, 0.5, 2, 2);
  step(saved, 3);
  EXPECT_FALSE(other.load(saved.save()));
  EXPECT_FALSE(other.load({}));
  for (const int64_t steps : {-1, 2}) {
    const int64_t counts[] = {1, steps, 2, 2};
    StateArrays arrays = saved.save();
    arrays[0] = make_state("counts", counts, OnResize::kShared);
    EXPECT_THAT(saved.load(arrays).message(), HasSubstr("out of range"));
  }
}

// Null where there is no accordion; the window is an epoch, at most.
TEST(CriticalRegime, IsOpenedAsTheScheduleSays) {
  const StreamSpec stream = single_tensor({.name = "w", .shape = {kValues}});
  const auto windows = [&](const std::string& text, uint64_t steps_per_epoch) {
    Store store;
    const CodecSchedule schedule = CodecSchedule::parse(text).value();
    const bool opened = open_regime(schedule, 0, steps_per_epoch, stream, store) != nullptr;
    EXPECT_EQ(opened, store.holds("w/regime")) << text;
    int64_t counts[4] = {};
    (void)copy_state(store.save(), "w/regime/counts", counts);
    return std::pair(counts[2], counts[3]);
  };
  const auto lengths = [](int64_t interval, int64_t window) { return std::pair(interval, window); };
  EXPECT_EQ(windows("topk:density=accordion(0.1;0.01)", 98), lengths(980, 98));
  EXPECT_EQ(windows("topk:density=accordion(0.1;0.01;0.5;0.25)", 98), lengths(25, 25));
  EXPECT_EQ(windows("topk:density=accordion(0.1;0.01;0.5;7steps)", 3), lengths(7, 7));
  EXPECT_EQ(windows("topk:density=warmup(0.1;4)", 98), lengths(0, 0));
  EXPECT_EQ(windows("fp32 | 1: topk:density=accordion(0.1;0.01)", 98), lengths(0, 0));
}

}  // namespace
}  // namespace thinwire
