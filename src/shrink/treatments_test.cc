// Tests of the search for a small setting: on losses that are known.
// SPDX-License-Identifier: Apache-2.0
#include "shrink/treatments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace thinwire {
namespace {

TEST(Treatments, FromExactToEverSmaller) {
  const auto all = treatments();
  EXPECT_EQ(all[0].bits, 0);
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_GE(all[i].bits, 1);
    EXPECT_LE(all[i].bits, kMostClusterBits);
    if (i > 1) {
      EXPECT_LE(all[i].bits, all[i - 1].bits);
      EXPECT_GE(all[i].prune, all[i - 1].prune);
      EXPECT_TRUE(all[i].bits < all[i - 1].bits || all[i].prune > all[i - 1].prune);
    }
  }
}

// A loss to which each group adds its own share: group g bears its treatment up to limits[g].
TEST(FindSetting, EachGroupGetsTheSmallestTreatmentThatItBears) {
  const Setting limits = {3, 9, 0, 12};
  const auto fits = [&](const Setting& setting) {
    for (size_t g = 0; g < limits.size(); ++g)
      if (setting[g] > limits[g]) return false;
    return true;
  };
  const SettingSearch search{.sizes = {10, 40, 20, 30}, .treatments = 13, .trials = 100};
  const FoundSetting found = find_setting(search, fits);
  EXPECT_EQ(found.setting, limits);
  EXPECT_LE(found.trials, 40);

  SettingSearch again = search;
  again.start = limits;
  EXPECT_EQ(find_setting(again, fits).setting, limits);
  EXPECT_LE(find_setting(again, fits).trials, 5);  // the start, and a step of each group
  again.start = {12, 12, 12, 12};
  EXPECT_EQ(find_setting(again, fits).setting, limits);
  again.start = {2, 8, 0, 11};
  EXPECT_EQ(find_setting(again, fits).setting, limits);

  again.start = {12, 12, 12, 12};
  again.start_fails = true;
  std::vector<Setting> asked;
  const auto noted = [&](const Setting& setting) {
    asked.push_back(setting);
    return fits(setting);
  };
  EXPECT_EQ(find_setting(again, noted).setting, limits);
  EXPECT_EQ(asked.front(), (Setting{11, 11, 11, 11}));
}

// Where groups share what may be lost, the common treatment comes first, then the largest group.
TEST(FindSetting, LargeGroupsComeFirst) {
  const auto fits = [](const Setting& setting) {
    return std::accumulate(setting.begin(), setting.end(), size_t{0}) <= 7;
  };
  const FoundSetting found =
      find_setting({.sizes = {10, 40, 20}, .treatments = 15, .trials = 100}, fits);
  EXPECT_EQ(found.setting, (Setting{2, 3, 2}));
}

TEST(FindSetting, EndsWithinItsTrialsWithWhatFitted) {
  for (int trials = 0; trials < 30; ++trials) {
    int asked = 0;
    std::vector<Setting> good;
    const auto fits = [&](const Setting& setting) {
      ++asked;
      if (setting[0] > 5 || setting[1] > 11) return false;
      good.push_back(setting);
      return true;
    };
    for (const Setting& start : {Setting{}, Setting{14, 14}}) {
      const FoundSetting found =
          find_setting({.sizes = {1, 2}, .treatments = 15, .trials = trials, .start = start}, fits);
      EXPECT_LE(found.trials, trials);
      const bool exact = found.setting == Setting{0, 0};
      EXPECT_TRUE(exact || std::find(good.begin(), good.end(), found.setting) != good.end());
    }
    EXPECT_LE(asked, 2 * trials);
  }
}

TEST(FindSetting, NothingFitsOrThereIsNothing) {
  const auto never = [](const Setting&) { return false; };
  EXPECT_EQ(find_setting({.sizes = {1, 2}, .treatments = 15, .trials = 50}, never).setting,
            (Setting{0, 0}));
  EXPECT_EQ(find_setting({.sizes = {1, 2}, .treatments = 15, .trials = 50, .start = {3, 9}}, never)
                .setting,
            (Setting{0, 0}));
  const FoundSetting none = find_setting({.sizes = {}, .treatments = 15, .trials = 50}, never);
  EXPECT_TRUE(none.setting.empty());
  EXPECT_EQ(none.trials, 0);
}

}  // namespace
}  // namespace thinwire
