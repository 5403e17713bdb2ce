// Ratios of stages, both rules of adaption, and state that survives rollback and restart.
// SPDX-License-Identifier: Apache-2.0
#include "codec/stage_control.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace thinwire {
namespace {

TEST(StageRatios, MultiplyToTheDensity) {
  for (const double density : {0.2, 0.1, 0.01, 0.001, 1e-6})
    for (const double first : {0.25, 0.5, 0.9})
      for (int stages = 1; stages <= 20; ++stages) {
        const StageRatios ratios = stage_ratios(density, first, stages);
        EXPECT_NEAR(ratios.first * std::pow(ratios.later, stages - 1) / density, 1, 1e-13);
        EXPECT_EQ(ratios.first, stages == 1 ? density : first);
      }
}

TEST(StageRatios, DensityFromTheFirstRatioOnIsOneStage) {
  for (const double density : {0.25, 0.5, 1.0}) {
    const StageRatios ratios = stage_ratios(density, 0.25, 4);
    EXPECT_EQ(ratios.first, density);
    EXPECT_EQ(ratios.later, 1);
  }
}

TEST(MaxStages, AreThePapers) {
  EXPECT_EQ(max_stages(0.1), 4);
  EXPECT_EQ(max_stages(0.01), 7);
  EXPECT_EQ(max_stages(0.001), 10);
  EXPECT_EQ(max_stages(0.125), 3);
  EXPECT_EQ(max_stages(0.5), 1);
  EXPECT_EQ(max_stages(1), 1);
}

constexpr StageRule kPlain{.scan = false};

// Records `ratio` for one window; the stages after it.
int after_window(StageControl& control, double ratio, int window = 5) {
  for (int step = 0; step < window; ++step) {
    control.record(ratio);
    control.commit();
  }
  return control.stages();
}

TEST(StageControl, PlainRuleMovesByOneAgainstTheError) {
  StageControl control(kPlain);
  EXPECT_EQ(control.stages(), 1);
  EXPECT_EQ(after_window(control, 0.5), 2);
  EXPECT_EQ(after_window(control, 0.79), 3);
  EXPECT_EQ(after_window(control, 0.81), 3);
  EXPECT_EQ(after_window(control, 1.19), 3);
  EXPECT_EQ(after_window(control, 1.21), 2);
  EXPECT_EQ(after_window(control, 30), 1);
}

TEST(StageControl, PlainRuleStaysInItsRange) {
  StageControl control(kPlain);
  for (int window = 0; window < 5; ++window) EXPECT_EQ(after_window(control, 9), 1);
  for (int window = 0; window < 20; ++window)
    EXPECT_EQ(after_window(control, 0), std::min(window + 2, 10));
}

TEST(StageControl, PlainRuleLooksAtTheMeanOfAWindowOnlyAtItsEnd) {
  StageControl control({.scan = false, .window = 3});
  for (const double ratio : {0.1, 0.1}) {
    control.record(ratio);
    EXPECT_EQ(control.stages(), 1);
  }
  control.record(2.3);  // the mean is 0.83
  EXPECT_EQ(control.stages(), 1);
  for (const double ratio : {0.1, 0.1}) {
    control.record(ratio);
    EXPECT_EQ(control.stages(), 1);
  }
  control.record(2.1);  // 0.77
  EXPECT_EQ(control.stages(), 2);
}

TEST(StageControl, ScanLooksBeforeTheFirstStepOfEveryWindow) {
  StageControl control({.window = 3});
  std::vector<int> looked;
  for (int step = 0; step < 10; ++step) {
    if (control.scan_due()) {
      looked.push_back(step);
      control.choose(step + 1);
    }
    control.record(100);
    control.commit();
  }
  EXPECT_EQ(looked, (std::vector<int>{0, 3, 6, 9}));
  EXPECT_EQ(control.stages(), 10);
}

TEST(StageControl, FixedNeverMoves) {
  StageControl control({.fixed = 4, .scan = false});
  EXPECT_FALSE(control.scan_due());
  for (const double ratio : {0.0, 50.0}) EXPECT_EQ(after_window(control, ratio), 4);
  EXPECT_TRUE(control.save().empty());
  EXPECT_TRUE(control.load({}));
}

TEST(StageControl, RollbackForgets) {
  for (const bool scan : {false, true}) {
    StageControl control({.scan = scan}), plain({.scan = scan});
    for (int step = 0; step < 23; ++step) {
      control.choose(7);
      control.record(0.1);
      control.rollback();
      EXPECT_EQ(control.scan_due(), plain.scan_due());
      for (StageControl* one : {&control, &plain}) {
        if (one->scan_due()) one->choose(step % 5 + 1);
        one->record(step % 7 * 0.3);
        one->commit();
      }
      EXPECT_EQ(control.stages(), plain.stages()) << step;
    }
  }
}

TEST(StageControl, StateComesBackBitForBit) {
  StageControl straight(kPlain);
  for (int step = 0; step < 40; ++step) {
    StageControl restarted(kPlain);
    ASSERT_TRUE(restarted.load(straight.save()));
    for (int more = 0; more < 7; ++more) {
      restarted.record(0.1 * more);
      restarted.commit();
    }
    StageControl copy = straight;
    for (int more = 0; more < 7; ++more) {
      copy.record(0.1 * more);
      copy.commit();
    }
    const auto a = copy.save(), b = restarted.save();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].data, b[i].data);
    straight.record(0.3);
    straight.commit();
  }
}

TEST(StageControl, RefusesStateOutOfRangeAndStaysAsItWas) {
  StageControl control(kPlain);
  EXPECT_EQ(after_window(control, 0.1), 2);
  const auto good = control.save();
  const auto state = [](int64_t stages, int64_t steps, double sum) {
    const int64_t counts[] = {stages, steps};
    return StateArrays{make_state("stages", counts, OnResize::kCopy),
                       make_state("ratio_sum", std::span(&sum, 1), OnResize::kCopy)};
  };
  ASSERT_TRUE(control.load(state(2, 4, 0.5)));
  ASSERT_TRUE(control.load(good));
  for (const auto& bad : {StateArrays{}, state(0, 0, 0), state(11, 0, 0), state(1, 5, 0),
                          state(1, -1, 0), state(1, 0, -1), state(1, 0, NAN)}) {
    EXPECT_EQ(control.load(bad).code(), ErrorCode::kMismatch);
    EXPECT_EQ(control.stages(), 2);
    EXPECT_EQ(control.save()[0].data, good[0].data);
  }
}

}  // namespace
}  // namespace thinwire
