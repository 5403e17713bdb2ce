// Tests of ranks of a hierarchy that throw, leave or stall: all others are told who it was.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/lost_rank.h"
#include "exchange/testing/tampering_group.h"

namespace thinwire::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using namespace std::chrono_literals;

// Six ranks in groups of 2 or 3, of which rank 4 is lost.
class LevelsLoss : public ::testing::TestWithParam<int> {
 protected:
  // Runs a step everywhere, then `trouble` on rank 4 and a step on the others; returns what those
  // were told. Ranks that wait for another rank than 4 itself have nine tenths of the deadline.
  std::vector<std::string> told(const std::function<void(Side&)>& trouble,
                                std::chrono::milliseconds deadline = kLongDeadline) {
    return lost_.told(6, [&](Group& group) {
      group.set_deadline(kLongDeadline);
      TamperingGroup plain(group, [](int, int, std::span<std::byte>) {});
      const int inside = GetParam();
      Side side(plain, small_model(), {.codec = "topk:density=0.1", .inside = inside});
      side.step(0);
      const bool waits_for_it =
          group.rank() / inside == 4 / inside || group.rank() % inside == 4 % inside;
      plain.last_split().set_deadline(waits_for_it ? deadline : deadline * 9 / 10);
      if (group.rank() == 4) return trouble(side);
      side.step(1);
    });
  }

  LostRank lost_{4};
};
INSTANTIATE_TEST_SUITE_P(Groups, LevelsLoss, ::testing::Values(2, 3));

TEST_P(LevelsLoss, ARankThatThrowsInMidStepIsNamed) {
  const auto messages = told([](Side& side) {
    side.values = gradients(small_model(), 4, 1);
    for (const size_t i : {8, 7, 6}) side.start(i);
    throw std::runtime_error("out of data");
  });
  EXPECT_THAT(messages, SizeIs(5));
  EXPECT_THAT(messages, Each(HasSubstr("rank 4")));
}

TEST_P(LevelsLoss, ARankThatLeavesBetweenStepsIsNamed) {
  const auto messages = told([](Side&) {});
  EXPECT_THAT(messages, SizeIs(5));
  EXPECT_THAT(messages, Each(HasSubstr("rank 4")));
}

// Its own group waits for it, and speaks before those who wait for that group, even if they wait
// less.
TEST_P(LevelsLoss, ARankThatStallsIsNamedAtTheDeadline) {
  const auto messages = told(
      [this](Side& side) {
        lost_.stall(5);
        EXPECT_THROW(side.step(1), Error);
      },
      4s);
  EXPECT_THAT(messages, SizeIs(5));
  EXPECT_THAT(messages, Each(HasSubstr("rank 4")));
}

// By its number among all ranks, not by that among the ranks of its place.
TEST(LevelsLossOnce, AnImpossibleLengthStopsEverybodyAndNamesItsSender) {
  const auto messages = LostRank(-1).told(4, [](Group& group) {
    TamperingGroup tampering(group, [&](int from, int tag, std::span<std::byte> message) {
      if (message.size() == 8 && tag < 30000 && group.rank() == 3 && from == 0)
        message[6] = std::byte{1};
    });
    Side(tampering, small_model(), {.codec = "topk:density=0.1", .inside = 2}).step(0);
  });
  EXPECT_THAT(messages, SizeIs(4));
  EXPECT_THAT(messages, Each(HasSubstr("rank 1 announces")));
}

}  // namespace
}  // namespace thinwire::testing
