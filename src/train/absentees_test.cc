// Tests of what the log says of ranks that are left out.
// SPDX-License-Identifier: Apache-2.0
#include "train/absentees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace thinwire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

StepReport report_of(uint64_t step, std::vector<LeftOut> left_out, std::vector<int> unchosen = {}) {
  StepReport report;
  report.step = step;
  report.left_out = std::move(left_out);
  report.unchosen = std::move(unchosen);
  return report;
}

TEST(Absentees, TheFirstFaultOfAKindIsTold) {
  Absentees absentees;
  EXPECT_THAT(absentees.add(report_of(0, {})), IsEmpty());
  EXPECT_THAT(absentees.add(report_of(3, {{2, LeftOutFor::kSilence}})),
              ElementsAre("step 3: rank 2 was left out for silence"));
  EXPECT_THAT(absentees.add(report_of(4, {{2, LeftOutFor::kSilence}})), IsEmpty());
  EXPECT_THAT(absentees.add(report_of(5, {{2, LeftOutFor::kEquivocation}})),
              ElementsAre("step 5: rank 2 was left out for equivocation"));
}

TEST(Absentees, WhoIsLeftOutConstantlyIsNamedOnce) {
  Absentees absentees;
  std::vector<std::string> lines;
  for (uint64_t step = 0; step < 3 * Absentees::kConstantly; ++step) {
    const bool other = step % 10 == 0;  // rank 1 is chosen at times
    for (const std::string& line :
         absentees.add(report_of(step, {}, other ? std::vector<int>{4} : std::vector<int>{1, 4})))
      lines.push_back(line);
  }
  EXPECT_THAT(lines, ElementsAre("rank 4 is left out constantly: of 50 steps in a row, now for the "
                                 "rule's choice"));
}

}  // namespace
}  // namespace thinwire
