// Tests of bad messages in gossip: no share of the sums is lost silently.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "exchange/testing/tampering_group.h"
#include "sync/testing/sync_testing.h"

namespace thinwire::testing {
namespace {

TEST(Gossip, ACorruptMessageEndsTheRunAndNamesItsSender) {
  constexpr int kRanks = 4;
  std::mutex mutex;
  std::vector<std::string> messages;
  try {
    run_local(kRanks, [&](Group& group) {
      TamperingGroup tampering(group, [&](int, int tag, std::span<std::byte> message) {
        if (tag == 0 && message.size() > 48 && group.rank() == kRanks - 1)
          message[60] ^= std::byte{1};
      });
      Worker worker(tampering, {.method = "gossip:tau=1,graph=ring"});
      try {
        for (int step = 0; step < 5 * kRanks; ++step) worker.step();
        ADD_FAILURE() << "went on";
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        messages.emplace_back(error.what());
      }
    });
  } catch (const Error&) {
  }
  EXPECT_THAT(messages, ::testing::SizeIs(kRanks));
  EXPECT_THAT(messages, ::testing::Each(::testing::HasSubstr(
                            "message of rank " + std::to_string(kRanks - 2) + " in round 0")));
}

TEST(Gossip, ValuesThatAreNotFiniteEndTheRunAndNameTheirRank) {
  constexpr int kRanks = 4;
  const auto run = [] {
    run_local(kRanks, [](Group& group) {
      Worker worker(group, {.method = "gossip:tau=1"});
      worker.step();
      if (group.rank() == 2) worker.x[4] = std::numeric_limits<float>::infinity();
      for (int step = 0; step < 5; ++step) worker.step();
    });
  };
  EXPECT_THAT(run, ::testing::ThrowsMessage<Error>(
                       ::testing::HasSubstr("gossip: rank 2 has a NaN or Inf in round 1")));
}

}  // namespace
}  // namespace thinwire::testing
