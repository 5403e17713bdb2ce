// Tests of ranks that throw, leave or stall: the others fail soon, with an error that names them.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/lost_rank.h"
#include "exchange/testing/tampering_group.h"

namespace thinwire::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kRanks = 4;

const Tamper kNoTampering = [](int, int, std::span<std::byte>) {};

class ExchangeLoss : public ::testing::TestWithParam<std::string> {
 protected:
  // Runs a step everywhere, then `trouble` on rank 1 and a step on the others with a deadline of
  // its own; returns what those were told.
  std::vector<std::string> told(const std::function<void(Side&)>& trouble,
                                std::chrono::milliseconds deadline = kLongDeadline) {
    return lost_.told(kRanks, [&](Group& group) {
      group.set_deadline(kLongDeadline);
      TamperingGroup plain(group, kNoTampering);
      ExchangeOptions options{.method = GetParam(), .bucket_bytes = 400};
      for (const ExchangeOptions& usual : one_per_method())
        if (usual.method == options.method) options.codec = usual.codec;
      Side side(plain, small_model(), options);
      side.step(0);
      plain.last_split().set_deadline(deadline);
      if (group.rank() == 1) return trouble(side);
      side.step(1);
    });
  }

  LostRank lost_{1};
};
INSTANTIATE_TEST_SUITE_P(Methods, ExchangeLoss,
                         ::testing::Values("dense", "scatter-reduce", "gather", "sparse-reduce",
                                           "low-rank", "shared-index", "library"));

TEST_P(ExchangeLoss, ARankThatThrowsInMidStepIsNamed) {
  const auto messages = told([](Side& side) {
    side.values = gradients(small_model(), 1, 1);
    for (const size_t i : {8, 7, 6}) side.start(i);
    throw std::runtime_error("out of data");
  });
  EXPECT_THAT(messages, SizeIs(3));
  EXPECT_THAT(messages, Each(HasSubstr("rank 1")));
}

TEST_P(ExchangeLoss, ARankThatLeavesBetweenStepsIsNamed) {
  const auto messages = told([](Side&) {});
  EXPECT_THAT(messages, SizeIs(3));
  EXPECT_THAT(messages, Each(HasSubstr("rank 1")));
}

TEST_P(ExchangeLoss, ARankThatStallsIsNamedAtTheDeadline) {
  const auto messages = told(
      [this](Side& side) {
        lost_.stall(3);
        EXPECT_THROW(side.step(1), Error);
      },
      2s);
  EXPECT_THAT(messages, SizeIs(3));
  EXPECT_THAT(messages, Each(HasSubstr("rank 1")));
}

// The last rank owns the only value and waits for rank 1, the others wait for the owner: it speaks
// first, and names rank 1.
TEST(ExchangeLossOnce, WhoWaitsForAnOwnerLetsTheOwnerNameTheRankThatStalls) {
  const std::vector<TensorSpec> model = {{"w", {1}, TensorKind::kLinear}};
  for (const std::string method : {"dense", "scatter-reduce"}) {
    LostRank lost(1);
    const ExchangeOptions options{.codec = "fp32", .method = method};
    const auto messages = lost.told(kRanks, [&](Group& group) {
      group.set_deadline(kLongDeadline);
      TamperingGroup plain(group, kNoTampering);
      Side side(plain, model, options);
      side.step(0);
      plain.last_split().set_deadline(2400ms);
      if (group.rank() == 1) {
        lost.stall(3);
        EXPECT_THROW(side.step(1), Error);
        return;
      }
      if (group.rank() == kRanks - 1) std::this_thread::sleep_for(150ms);
      side.step(1);
    });
    EXPECT_THAT(messages, SizeIs(3)) << method;
    EXPECT_THAT(messages, Each(HasSubstr("rank 1"))) << method;
  }
}

TEST(ExchangeLossOnce, AnErrorIsThrownAgainByEveryLaterCall) {
  run_local(2, [](Group& group) {
    group.set_deadline(kLongDeadline);
    TamperingGroup plain(group, kNoTampering);
    Side side(plain, small_model(), {});
    if (group.rank() == 1) {  // does nothing until it hears that rank 0 has failed
      std::byte never[1];
      EXPECT_THROW(group.wait(group.receive(never, 0, 7)), Error);
      return;
    }
    plain.last_split().set_deadline(100ms);
    EXPECT_THROW(side.step(0), Error);
    EXPECT_THROW(side.start(0), Error);
    EXPECT_THROW(side.exchange().finish(), Error);
    EXPECT_THROW(side.exchange().wait({0}), Error);
  });
}

class ImpossibleLength : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Methods, ImpossibleLength,
                         ::testing::Values("gather", "sparse-reduce", "shared-index"));

TEST_P(ImpossibleLength, StopsEverybodyAndNamesItsSender) {
  const auto messages = LostRank(-1).told(3, [](Group& group) {
    TamperingGroup tampering(group, [&](int from, int tag, std::span<std::byte> message) {
      if (message.size() == 8 && tag < 30000 && group.rank() == 2 && from == 0)
        message[6] = std::byte{1};
    });
    const auto all = one_per_method();
    const auto options = std::find_if(all.begin(), all.end(), [](const ExchangeOptions& usual) {
      return usual.method == GetParam();
    });
    Side(tampering, small_model(), *options).step(0);
  });
  EXPECT_THAT(messages, SizeIs(3));
  EXPECT_THAT(messages, Each(HasSubstr("rank 0 announces")));
}

TEST(ExchangeLossOnce, AnExchangeOverAnUnfinishedStepCanBeDestroyed) {
  for (int repeat = 0; repeat < 10; ++repeat) {
    const auto since = Clock::now();
    run_local(3, [](Group& group) {
      group.set_deadline(kLongDeadline);
      try {
        Side side(group, small_model(), {.bucket_bytes = 100});
        side.values = gradients(small_model(), group.rank(), 0);
        for (size_t i = 8; i > 3; --i) side.start(i);
      } catch (const Error&) {
        // Another rank has left already, perhaps while this one's exchange was made.
      }
    });
    EXPECT_LT(Clock::now() - since, kSoon);
  }
}

TEST(ExchangeLossOnce, AStepThatIsWhollyStartedEndsBeforeTheExchangeDoes) {
  run_local(3, [](Group& group) {
    Tensors values = gradients(small_model(), group.rank(), 0);
    Store store;
    {
      const auto exchange = make_exchange(group, store, small_model(), {});
      for (size_t i = 0; i < values.size(); ++i)
        exchange->start(i, {.data = values[i].data(), .count = values[i].size()});
    }
    Side other(group, small_model(), {});
    other.step(0);
    EXPECT_TRUE(same_bits(values, other.values));
  });
}

}  // namespace
}  // namespace thinwire::testing
