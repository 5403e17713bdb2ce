// Tests of workers that throw, leave or stall in a round: the others fail soon, and name them.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <stdexcept>
#include <thread>

#include "core/testing/test_name.h"
#include "exchange/testing/lost_rank.h"
#include "exchange/testing/tampering_group.h"
#include "sync/testing/sync_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kRanks = 4;

class SyncLoss : public ::testing::TestWithParam<std::string> {
 protected:
  // A round everywhere, then `trouble` on rank 1 and rounds on the others; what those were told.
  std::vector<std::string> told(const std::function<void(Worker&)>& trouble,
                                std::chrono::milliseconds deadline = kLongDeadline) {
    std::latch all_built(
        kRanks);  // an asynchronous rank 1 would be gone before a slow one is built
    return lost_.told(kRanks, [&](Group& group) {
      group.set_deadline(deadline);
      Worker worker(group, {.method = GetParam()});
      all_built.arrive_and_wait();
      try {
        worker.step();
        worker.step();
        if (group.rank() == 1) return trouble(worker);
        for (;;) worker.step();
      } catch (const Error&) {
        if (group.rank() != 1) {
          EXPECT_THROW(worker.step(), Error);  // it is over for good
        }
        throw;
      }
    });
  }

  LostRank lost_{1};
};

std::vector<std::string> all_methods() {
  std::vector<std::string> methods = {"leader:tau=1,tau_global=2,groups=2",
                                      "leader:tau=1,tau_global=1,asynchronous=true",
                                      "streaming:tau=2,fragments=2,delay=1"};
  for (const SynchroniserInfo& info : list_synchronisers()) {
    std::string method = std::string(info.name) + ":tau=1";
    if (info.name == "leader") method += ",tau_global=1";
    methods.push_back(method);
  }
  return methods;
}
INSTANTIATE_TEST_SUITE_P(Methods, SyncLoss, ::testing::ValuesIn(all_methods()),
                         [](const auto& row) { return test_name(row.param); });

TEST_P(SyncLoss, AWorkerThatThrowsBetweenRoundsIsNamed) {
  const auto messages = told([](Worker&) { throw std::runtime_error("out of data"); });
  EXPECT_THAT(messages, SizeIs(3));
  EXPECT_THAT(messages, Each(HasSubstr("rank 1")));
}

TEST_P(SyncLoss, AWorkerThatLeavesIsNamed) {
  const auto messages = told([](Worker&) {});
  EXPECT_THAT(messages, SizeIs(3));
  EXPECT_THAT(messages, Each(HasSubstr("rank 1")));
}

TEST_P(SyncLoss, AWorkerThatStallsIsNamedAtTheDeadline) {
  const auto messages = told(
      [this](Worker& worker) {
        lost_.stall(3);
        EXPECT_THROW(for (;;) worker.step(), Error);
      },
      2s);
  EXPECT_THAT(messages, SizeIs(3));
  EXPECT_THAT(messages, Each(HasSubstr("rank 1")));
}

// A rank that stays where it is after an error, as a program does that reports it and waits: the
// others must not.
TEST(SyncLossOnce, AnErrorOnOneRankEndsTheOthersAtOnce) {
  std::atomic<int> failed{0};
  const auto since = Clock::now();
  run_local(kRanks, [&](Group& group) {
    group.set_deadline(kLongDeadline);
    // The last rank reads the leader's length as an impossible one.
    TamperingGroup tampering(group, [&](int, int tag, std::span<std::byte> message) {
      if (tag == 30001 && message.size() == 8 && group.rank() == kRanks - 1)
        message[6] = std::byte{1};
    });
    Worker worker(tampering, {.method = "leader:tau=1,tau_global=1", .codec = "topk:density=0.1"});
    try {
      for (;;) worker.step();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("announces"));
      ++failed;
    }
    for (const auto until = Clock::now() + kSoon; failed < kRanks && Clock::now() < until;)
      std::this_thread::sleep_for(5ms);
  });
  EXPECT_EQ(failed, kRanks);
  EXPECT_LT(Clock::now() - since, kSoon);
}

}  // namespace
}  // namespace thinwire::testing
