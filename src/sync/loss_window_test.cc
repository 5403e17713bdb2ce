// Tests of LossWindow: means while it fills, losses that are not finite, ties.
// SPDX-License-Identifier: Apache-2.0
#include "sync/loss_window.h"

#include <gtest/gtest.h>

namespace thinwire {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(LossWindow, IsTheMeanOfWhatItSawUntilItIsFull) {
  std::vector<double> losses(3), seen(1);
  LossWindow window(losses, seen);
  EXPECT_EQ(window.mean(), kInf);  // who saw nothing does not lead
  window.add(6);
  EXPECT_EQ(window.mean(), 6);  // not 2
  window.add(2);
  EXPECT_EQ(window.mean(), 4);
  window.add(1);
  EXPECT_EQ(window.mean(), 3);
  window.add(9);
  EXPECT_EQ(window.mean(), 4);  // of 2, 1, 9
}

TEST(LossWindow, ALossThatIsNoNumberCountsAsInfiniteUntilItLeaves) {
  for (const double bad : {kNaN, kInf, -kInf}) {
    std::vector<double> losses(2), seen(1);
    LossWindow window(losses, seen);
    window.add(bad);
    EXPECT_EQ(window.mean(), kInf);
    window.add(1);
    EXPECT_EQ(window.mean(), kInf);
    window.add(3);
    EXPECT_EQ(window.mean(), 2);
  }
}

TEST(LossWindow, GoesOnFromWhatWasSaved) {
  std::vector<double> losses(3), seen(1);
  LossWindow(losses, seen).add(4);
  LossWindow later(losses, seen);
  later.add(8);
  EXPECT_EQ(later.mean(), 6);
}

TEST(FindLeader, TakesTheSmallestAndTheFirstOfEquals) {
  const std::vector<double> losses = {3, 1, 2, 1};
  EXPECT_EQ(find_leader(losses), 1);
}

TEST(FindLeader, NoNumberLeads) {
  EXPECT_EQ(find_leader(std::vector<double>{kNaN, kInf, 5, kNaN}), 2);
  EXPECT_EQ(find_leader(std::vector<double>{kNaN, kInf, -kInf}), -1);
  EXPECT_EQ(find_leader({}), -1);
}

}  // namespace
}  // namespace thinwire
