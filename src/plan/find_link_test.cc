// Tests of how a link is found: with simulated rounds, so that nothing but the link counts.
// SPDX-License-Identifier: Apache-2.0
#include "plan/find_link.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace thinwire {
namespace {

constexpr double kFirstWindow = 14600;  // bytes, of TCP

// A link, and what was sent over it.
struct Simulated {
  int ranks;
  LinkSpec link;
  double window = 1e12;  // bytes that may be sent before an answer; doubles with each answer
  double spent = 0;      // seconds

  double message(size_t bytes) {
    double rest = static_cast<double>(bytes), seconds = link.latency_seconds;
    for (; rest > window; window *= 2) {  // a link that is full waits for no answer
      seconds += std::max(2 * link.latency_seconds, link.seconds_for(window));
      rest -= window;
    }
    return seconds + link.seconds_for(rest);
  }

  ProbedLink probe(double given, const std::optional<LinkSpec>& known = std::nullopt) {
    return find_link(ranks, given, known, [this](size_t bytes) {
      MessageRound round;
      for (int way = 0; way < ways_among(ranks); ++way) {
        const double seconds = message(bytes);
        round.slower = std::max(round.slower, seconds);
        round.by_all += seconds;
        spent += seconds + turns_among(ranks) * link.latency_seconds;
      }
      return round;
    });
  }
};

constexpr double kLatencies[] = {0.0001, 0.005, 0.01, 0.02, 0.05, 0.1};

LinkSpec gigabit(double latency) { return {.bits_per_second = 1e9, .latency_seconds = latency}; }

// Calls `test` with simulated links of 1 Gbit/s.
template <typename Test>
void for_each_link(const Test& test) {
  for (const int ranks : {2, 4})
    for (const double latency : kLatencies) {
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << latency << " s");
      test(Simulated{.ranks = ranks, .link = gigabit(latency)});
    }
}

TEST(FindLink, FindsTheRateWhateverTheLatency) {
  for_each_link([](Simulated one) {
    const ProbedLink found = one.probe(0.5);
    EXPECT_FALSE(found.at_least);
    EXPECT_NEAR(found.bits_per_second, 1e9, 3e7);
    EXPECT_NEAR(found.latency_seconds, one.link.latency_seconds, 1e-7);
    EXPECT_LE(one.spent, one.link.latency_seconds < 0.02 ? 0.55 : 4);
  });
}

// The rate is right, or said to be no more than a bound.
TEST(FindLink, SaysWhereItHadTooLittleTime) {
  for_each_link([](Simulated one) {
    const ProbedLink found = one.probe(0.05);
    EXPECT_LE(found.bits_per_second, 1.03e9);
    if (!found.at_least) {
      EXPECT_GE(found.bits_per_second, 0.97e9);
    }
    EXPECT_EQ(found.at_least, one.link.latency_seconds > (one.ranks == 2 ? 0.05 : 0.02));
    const double round =
        ways_among(one.ranks) * (1 + turns_among(one.ranks)) * one.link.latency_seconds;
    EXPECT_LE(one.spent, std::max(16 * 0.05, 2 * round + 0.02));
  });
}

TEST(FindLink, FindsAKnownRateInTheLeastTime) {
  for_each_link([](Simulated one) {
    const double least = least_probe_seconds(one.ranks, one.link);
    const ProbedLink found = one.probe(least, one.link);
    EXPECT_FALSE(found.at_least);
    EXPECT_NEAR(found.bits_per_second, 1e9, 3e7);
    EXPECT_LE(one.spent, least);
  });
}

// A link that became slower than it was is seen, and one that became faster is faster at least.
TEST(FindLink, SeesThatAKnownLinkChanged) {
  for (const double times : {0.01, 0.1, 10.0})
    for_each_link([&](Simulated one) {
      SCOPED_TRACE(::testing::Message() << times);
      const LinkSpec known = one.link;
      one.link.bits_per_second *= times;
      const ProbedLink found = one.probe(20 * least_probe_seconds(one.ranks, known), known);
      EXPECT_LE(found.bits_per_second, 1.05 * one.link.bits_per_second);
      if (!found.at_least) {
        EXPECT_GE(found.bits_per_second, 0.95 * one.link.bits_per_second);
      }
      if (times < 1) {
        EXPECT_FALSE(found.at_least);
      }
      if (times > 1) {
        EXPECT_GE(found.bits_per_second, 2 * known.bits_per_second);
      }
    });
}

// A probe that has time for the link as it was cannot tell how slow it became, and asks for more.
TEST(FindLink, ASecondProbeTellsThatAKnownLinkIsSlowerByFar) {
  for (const double times : {0.05, 0.02, 0.01})
    for_each_link([&](Simulated one) {
      SCOPED_TRACE(::testing::Message() << times);
      const LinkSpec known = one.link;
      one.link.bits_per_second *= times;
      const ProbedLink first = one.probe(least_probe_seconds(one.ranks, known), known);
      const double next = next_probe_seconds(one.ranks, known, first);
      EXPECT_GE(next, least_probe_seconds(one.ranks, known));
      const ProbedLink second = one.probe(next, known);
      EXPECT_FALSE(second.at_least);
      EXPECT_NEAR(second.bits_per_second / one.link.bits_per_second, 1, 0.05);
    });
}

// TCP sends a new connection's first megabytes in many round trips, and those of one that was idle.
TEST(FindLink, AWindowThatOpensIsNotTheLink) {
  for_each_link([](Simulated one) {
    one.window = kFirstWindow;
    const ProbedLink found = one.probe(0.5);
    EXPECT_GE(found.bits_per_second, 3e8);
    one.window = kFirstWindow;
    const ProbedLink again = one.probe(least_probe_seconds(one.ranks, one.link), one.link);
    if (!again.at_least) {
      EXPECT_GE(again.bits_per_second, 3e8);
    }
  });
}

TEST(FindLink, SlowLinksTakeOneMessage) {
  Simulated one{.ranks = 2, .link = {.bits_per_second = 1e5, .latency_seconds = 0.0001}};
  const ProbedLink found = one.probe(0.05);
  EXPECT_FALSE(found.at_least);
  EXPECT_NEAR(found.bits_per_second, 1e5, 1e3);
  EXPECT_LE(one.spent, 1.5);
  Simulated known{.ranks = 2, .link = {.bits_per_second = 1e6, .latency_seconds = 0.01}};
  EXPECT_FALSE(known.probe(0.02, known.link).at_least);
  EXPECT_LE(known.spent, 0.2);
}

TEST(FindLink, MemoryOfAMachineHasNoLimit) {
  Simulated one{.ranks = 2, .link = {.bits_per_second = 1e12, .latency_seconds = 0.00001}};
  const ProbedLink found = one.probe(0.5);
  EXPECT_EQ(found.bits_per_second, 0);
  EXPECT_FALSE(found.at_least);
}

}  // namespace
}  // namespace thinwire
