// Tests of ranks of a hierarchy that throw, leave or stall: all others are told who it was.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/tampering_group.h"

namespace thinwire::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// Machines that test are slow at times. Nothing here may take as long as the usual deadline.
constexpr auto kDeadline = 200s;
constexpr auto kSoon = 100s;

// Six ranks in groups of 2 or 3, of which rank 4 is lost.
class LevelsLoss : public ::testing::TestWithParam<int> {
 protected:
  std::vector<std::string> told(const std::function<void(Side&)>& trouble,
                                std::chrono::milliseconds deadline = kDeadline) {
    std::mutex mutex;
    std::vector<std::string> messages;
    const auto since = Clock::now();
    try {
      run_local(6, [&](Group& group) {
        group.set_deadline(kDeadline);
        TamperingGroup plain(group, [](int, int, std::span<std::byte>) {});
        Side side(plain, small_model(), {.codec = "topk:density=0.1", .inside = GetParam()});
        try {
          side.step(0);
          plain.last_split().set_deadline(deadline);
          if (group.rank() == 4) return trouble(side);
          side.step(1);
        } catch (const Error& error) {
          if (group.rank() == 4) throw;
          const std::lock_guard lock(mutex);
          messages.emplace_back(error.what());
          ++failed_;
          throw;
        }
      });
    } catch (const std::exception&) {  // of one of the ranks
    }
    EXPECT_LT(Clock::now() - since, kSoon);
    return messages;
  }

  std::atomic<int> failed_{0};  // of the others
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

// Its own group waits for it, and speaks before those who wait for that group.
TEST_P(LevelsLoss, ARankThatStallsIsNamedAtTheDeadline) {
  const auto messages = told(
      [this](Side& side) {
        for (const auto until = Clock::now() + kSoon; failed_ < 5 && Clock::now() < until;)
          std::this_thread::sleep_for(10ms);
        EXPECT_THROW(side.step(1), Error);
      },
      2s);
  EXPECT_THAT(messages, SizeIs(5));
  EXPECT_THAT(messages, Each(HasSubstr("rank 4")));
}

// By its number among all ranks, not by that among the ranks of its place.
TEST(LevelsLossOnce, AnImpossibleLengthStopsEverybodyAndNamesItsSender) {
  std::mutex mutex;
  std::vector<std::string> messages;
  const auto run = [&] {
    run_local(4, [&](Group& group) {
      TamperingGroup tampering(group, [&](int from, int tag, std::span<std::byte> message) {
        if (message.size() == 8 && tag < 30000 && group.rank() == 3 && from == 0)
          message[6] = std::byte{1};
      });
      Side side(tampering, small_model(), {.codec = "topk:density=0.1", .inside = 2});
      try {
        side.step(0);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        messages.emplace_back(error.what());
        throw;
      }
    });
  };
  EXPECT_THROW(run(), Error);
  EXPECT_THAT(messages, SizeIs(4));
  EXPECT_THAT(messages, Each(HasSubstr("rank 1 announces")));
}

}  // namespace
}  // namespace thinwire::testing
