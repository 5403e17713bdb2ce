// Tests of stage schedules: complete, executable, and with the stash and idle time that they
// promise.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/stage_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {
namespace {

constexpr std::array kOrders = {PipelineOrder::kFillDrain, PipelineOrder::kOneFOneB,
                                PipelineOrder::kDecoupled};

TEST(Schedule, OneStageOneFOneBAlternates) {
  const std::vector<PipelineOp> want = {{false, 0}, {true, 0}, {false, 1}, {true, 1}};
  EXPECT_EQ(stage_operations(PipelineOrder::kOneFOneB, 1, 0, 2), want);
}

TEST(Schedule, IsTheOneInThePaper) {
  const std::vector<PipelineOp> first = {{false, 0}, {false, 1}, {false, 2}, {true, 0},
                                         {false, 3}, {true, 1},  {true, 2},  {true, 3}};
  EXPECT_EQ(stage_operations(PipelineOrder::kOneFOneB, 3, 0, 4), first);
  const std::vector<PipelineOp> filled = {{false, 0}, {false, 1}, {true, 0}, {true, 1}};
  EXPECT_EQ(stage_operations(PipelineOrder::kFillDrain, 3, 1, 2), filled);
}

TEST(Schedule, EveryOperationOnceAndBackwardAfterItsForward) {
  for (const PipelineOrder order : kOrders)
    for (size_t stages = 1; stages <= 6; ++stages)
      for (size_t micro = 1; micro <= 9; ++micro)
        for (size_t stage = 0; stage < stages; ++stage) {
          std::vector<int> forward(micro), backward(micro);
          size_t last[2] = {0, 0};
          for (const PipelineOp& op : stage_operations(order, stages, stage, micro)) {
            ASSERT_LT(op.micro_batch, micro);
            ASSERT_EQ(op.micro_batch, last[op.backward]++) << "in order, either way";
            if (op.backward) {
              ASSERT_EQ(forward[op.micro_batch], 1);
            }
            ++(op.backward ? backward : forward)[op.micro_batch];
          }
          EXPECT_EQ(forward, std::vector<int>(micro, 1));
          EXPECT_EQ(backward, std::vector<int>(micro, 1));
        }
}

// The most micro-batches whose activations wait for their backward pass at one time.
size_t peak_stash(std::span<const PipelineOp> operations) {
  size_t kept = 0, peak = 0;
  for (const PipelineOp& op : operations) {
    kept = op.backward ? kept - 1 : kept + 1;
    peak = std::max(peak, kept);
  }
  return peak;
}

TEST(Schedule, StashIsBounded) {
  for (size_t stages = 1; stages <= 6; ++stages)
    for (size_t micro = 1; micro <= 9; ++micro)
      for (size_t stage = 0; stage < stages; ++stage) {
        const auto peak = [&](PipelineOrder order) {
          return peak_stash(stage_operations(order, stages, stage, micro));
        };
        EXPECT_EQ(peak(PipelineOrder::kFillDrain), micro);
        EXPECT_EQ(peak(PipelineOrder::kOneFOneB), std::min(stages - stage, micro));
        EXPECT_EQ(peak(PipelineOrder::kDecoupled), 1u);
      }
}

// That the playback ends at all shows that no stage waits for one that waits for it.
TEST(Schedule, IdleShareOfEqualStages) {
  for (const PipelineOrder order : kOrders)
    for (size_t stages = 1; stages <= 6; ++stages)
      for (size_t micro = 1; micro <= 9; ++micro) {
        const std::vector<StageTimes> times(stages, {.forward = 1, .backward = 2});
        const auto s = static_cast<double>(stages), m = static_cast<double>(micro);
        const bool waits = order != PipelineOrder::kDecoupled;
        EXPECT_NEAR(idle_share(order, times, micro), waits ? (s - 1) / (m + s - 1) : 0, 1e-12)
            << stages << " stages, " << micro << " micro-batches";
      }
}

TEST(Schedule, IdleShareOfUnequalStages) {
  // Forward ends at 1 and 4, backward of stage 1 at 7, of stage 0 at 8: 8 busy of 16.
  const std::vector<StageTimes> times = {{.forward = 1, .backward = 1},
                                         {.forward = 3, .backward = 3}};
  for (const PipelineOrder order : {PipelineOrder::kFillDrain, PipelineOrder::kOneFOneB})
    EXPECT_NEAR(idle_share(order, times, 1), 0.5, 1e-12);
  // Two: stage 1 works from 1 to 13 without a pause, stage 0 ends at 14: 16 busy of 28.
  EXPECT_NEAR(idle_share(PipelineOrder::kFillDrain, times, 2), 12.0 / 28, 1e-12);
  EXPECT_NEAR(idle_share(PipelineOrder::kOneFOneB, times, 2), 12.0 / 28, 1e-12);
  // Decoupled, stage 1 works for 12 and stage 0 for 4 of them.
  EXPECT_NEAR(idle_share(PipelineOrder::kDecoupled, times, 2), 8.0 / 24, 1e-12);
}

TEST(Schedule, ContractsAreChecked) {
  EXPECT_THROW(stage_operations(PipelineOrder::kFillDrain, 2, 2, 1), Error);
  EXPECT_THROW(stage_operations(PipelineOrder::kFillDrain, 2, 1, 0), Error);
  EXPECT_THROW(idle_share(PipelineOrder::kFillDrain, {}, 1), Error);
  const std::vector<StageTimes> still = {{.forward = 0, .backward = 0}};
  EXPECT_THROW(idle_share(PipelineOrder::kFillDrain, still, 1), Error);
}

}  // namespace
}  // namespace thinwire
