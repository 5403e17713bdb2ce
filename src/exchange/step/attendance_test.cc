// Tests of the exchange of weights, and of weights that are damaged or never come.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/step/attendance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "exchange/step/message_tags.h"
#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/tampering_group.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

TEST(Attendance, AllRanksKnowTheSameAndTheirOwnShare) {
  const std::vector<double> weights = {0, 2, 0, 5, 1};
  run_local(5, [&](Group& group) {
    Attendance attendance(group);
    for (uint64_t step = 0; step < 3; ++step) {
      attendance.begin(step, weights[static_cast<size_t>(group.rank())]);
      while (!attendance.known()) {
        attendance.advance();
        std::this_thread::yield();
      }
      EXPECT_EQ(attendance.count(), 3u);
      EXPECT_EQ(attendance.participant(0), 1u);
      EXPECT_EQ(attendance.participant(1), 3u);
      EXPECT_EQ(attendance.participant(2), 4u);
      EXPECT_EQ(attendance.factor(),
                static_cast<float>(5 * weights[static_cast<size_t>(group.rank())] / 8));
    }
    attendance.begin();
    EXPECT_TRUE(attendance.known());
    EXPECT_EQ(attendance.count(), 5u);
    EXPECT_EQ(attendance.factor(), 1.0f);
  });
}

TEST(Attendance, EqualWeightsAreExactlyOne) {
  for (int n = 1; n <= 9; ++n)
    for (const double weight : {0.1, 1e-300, 1e300 / 16, 1.7e308, 3.0, 7.0 / 9})
      run_local(n, [&](Group& group) {
        Attendance attendance(group);
        attendance.begin(0, weight);
        while (!attendance.known()) {
          attendance.advance();
          std::this_thread::yield();
        }
        EXPECT_EQ(attendance.factor(), 1.0f) << n << " of " << weight;
      });
}

TEST(Attendance, RanksTellWhatTheyOweWhereAllDo) {
  run_local(3, [&](Group& group) {
    Attendance attendance(group);
    const auto all_of = [&](uint64_t step) {
      while (!attendance.known()) {
        attendance.advance();
        std::this_thread::yield();
      }
      for (int rank = 0; rank < 3; ++rank) {
        const auto& debt = attendance.debts()[static_cast<size_t>(rank)];
        ASSERT_TRUE(debt);
        EXPECT_EQ(debt->rank, rank);
        EXPECT_EQ(debt->owed, 0.5 * rank + 4);
        EXPECT_EQ(debt->step, step);
      }
      EXPECT_EQ(attendance.factor(), group.rank() == 1 ? 0.0f : 1.5f);
    };
    const double weight = group.rank() == 1 ? 0 : 1;
    attendance.begin(4, weight);
    while (!attendance.known()) attendance.advance();
    EXPECT_FALSE(attendance.debts()[0]);
    for (uint64_t step = 5; step < 7; ++step) {
      attendance.begin(step, weight, 0.5 * group.rank() + 4);
      all_of(step);
    }
    attendance.begin(7, weight);
    all_of(6);
  });
}

// Neither a debt for a weight, nor a damaged one.
TEST(Attendance, ADamagedDebtEndsTheExchangeOnAllRanks) {
  const std::function<void(std::span<std::byte>)> damages[] = {
      [](std::span<std::byte> message) { message[20] ^= std::byte{4}; },
      [](std::span<std::byte> message) {
        std::swap_ranges(message.begin(), message.begin() + 16, message.begin() + 16);
      }};
  for (const auto& damage : damages)
    run_local(2, [&](Group& group) {
      TamperingGroup tampering(group, [&](int /*from*/, int tag, std::span<std::byte> message) {
        if (group.rank() == 1 && tag == kAttendanceTag) damage(message);
      });
      Side side(tampering, small_model(), {.debts = true});
      EXPECT_THAT(error_of([&] { side.step(0); }), HasSubstr("the word of rank 0 arrived corrupt"));
    });
}

// Ranks would divide by different sums otherwise.
TEST(Attendance, ADamagedWeightEndsTheExchangeOnAllRanks) {
  for (const int n : {2, 3, 5})
    for (const size_t at : {size_t{6}, size_t{12}})
      run_local(n, [&](Group& group) {
        const bool damaged = group.rank() == n - 1;
        TamperingGroup tampering(group, [&](int from, int tag, std::span<std::byte> message) {
          if (damaged && from == 0 && tag == kAttendanceTag) message[at] ^= std::byte{4};
        });
        Side side(tampering, small_model(), {.weighted = true});
        try {
          side.step(0);
          ADD_FAILURE() << "rank " << group.rank() << " took it";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), damaged ? ErrorCode::kCorrupt : ErrorCode::kPeerLost);
          EXPECT_THAT(error.what(), HasSubstr("the word of rank 0 arrived corrupt"));
        }
      });
}

TEST(Attendance, AWeightOfAnEarlierStepIsDamaged) {
  run_local(2, [&](Group& group) {
    std::array<std::byte, 16> kept{};
    int came = 0;
    TamperingGroup tampering(group, [&](int /*from*/, int tag, std::span<std::byte> message) {
      if (tag != kAttendanceTag || group.rank() == 0) return;
      if (came++ == 0)
        std::copy(message.begin(), message.end(), kept.begin());
      else
        std::copy(kept.begin(), kept.end(), message.begin());
    });
    Side side(tampering, small_model(), {.weighted = true});
    side.step(0);
    EXPECT_THROW(side.step(1), Error);
  });
}

TEST(Attendance, WhoDoesNotComeIsNamedAtTheDeadline) {
  run_local(3, [&](Group& group) {
    TamperingGroup watching(group, [](int, int, std::span<std::byte>) {});
    Side side(watching, small_model(), {.weighted = true});
    watching.last_split().set_deadline(std::chrono::milliseconds(200));
    if (group.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      return;
    }
    const auto since = std::chrono::steady_clock::now();
    try {
      side.step(0);
      ADD_FAILURE() << "rank " << group.rank() << " had a mean";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("receive of 16 bytes from rank 2"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::milliseconds(1400));
  });
}

// The destructor must not wait for the others.
TEST(Attendance, AnExchangeMayBeDestroyedWhileItWaits) {
  const auto since = std::chrono::steady_clock::now();
  EXPECT_THROW(run_local(2,
                         [&](Group& group) {
                           Side side(group, small_model(), {.weighted = true});
                           side.values = gradients(small_model(), group.rank(), 0);
                           if (group.rank() == 0) {
                             side.start(0);
                             return;
                           }
                           side.step(0);
                         }),
               Error);
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::seconds(10));
}

}  // namespace
}  // namespace thinwire::testing
