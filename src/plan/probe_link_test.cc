// Tests of probes: the rate of a simulated link is found within bounds, and the slowest rank
// counts.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <functional>
#include <memory>

#include "plan/find_link.h"
#include "plan/testing/slow_group.h"

namespace thinwire::testing {
namespace {

// Of each rank's probe.
std::array<LinkSpec, 3> probed(const std::array<LinkSpec, 3>& links) {
  std::array<LinkSpec, 3> found;
  run_local(3, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    SlowGroup slow(group, links[rank]);
    found[rank] = probe_link(slow, 0.2);
  });
  return found;
}

// A busy machine makes links slower, and latency, of which at most half of a round is taken off,
// longer: twice the rate at most is found. A tenth of it is left whatever the machine does.
TEST(ProbeLink, FindsTheSlowestRank) {
  const LinkSpec fast{.bits_per_second = 4e9, .latency_seconds = 0};
  const LinkSpec slow{.bits_per_second = 2e7, .latency_seconds = 0.003};
  const auto found = probed({fast, slow, fast});
  for (const LinkSpec& link : found) {
    EXPECT_EQ(link.bits_per_second, found[0].bits_per_second);
    EXPECT_EQ(link.latency_seconds, found[0].latency_seconds);
    EXPECT_GE(link.latency_seconds, 0.003);
    EXPECT_LE(link.bits_per_second, 4.2e7);
    EXPECT_GE(link.bits_per_second, 2e6);
  }
  EXPECT_GT(probed({fast, fast, fast})[0].bits_per_second, found[0].bits_per_second);
}

// Of 5 Mbit/s each of four ranks has a quarter while all four send. The clock of each message stands
// at the instant at which the last rank sends its own, so that a rank that a busy machine starts
// late does not find the link free. At most half of a round is taken off for its latency: twice the
// rate at most is found. A probe of the next rank alone finds all 5 Mbit/s.
TEST(ProbeLink, FindsThePartOfRanksThatShareALink) {
  const std::array links = {std::make_shared<SlowLink>(), std::make_shared<SlowLink>()};
  SlowGroup::Clock::time_point all_sent;
  std::barrier last(8, [&all_sent]() noexcept { all_sent = SlowGroup::Clock::now(); });
  run_local(8, [&](Group& group) {
    SlowGroup slow(group, {.bits_per_second = 5e6, .latency_seconds = 0}, 4,
                   links[static_cast<size_t>(group.rank()) / 4], [&] {
                     last.arrive_and_wait();
                     return all_sent;
                   });
    double highest = 0;
    for (int again = 0; again < 3; ++again) {
      const ProbedLink found = probe_link(slow, 0.4);
      if (!found.at_least) highest = std::max(highest, found.bits_per_second);
    }
    EXPECT_LE(highest, 2.5e6);
    EXPECT_GE(highest, 1.25e5);
  });
}

TEST(ProbeLink, ASingleRankHasNoLimit) {
  run_local(1, [](Group& group) {
    EXPECT_EQ(probe_link(group).bits_per_second, 0);
    EXPECT_EQ(group.bytes_sent(), 0u);
  });
}

// One small message is sent whatever the time: without it no latency is known.
TEST(ProbeLink, WithoutTimeFindsALatencyNevertheless) {
  run_local(2, [](Group& group) {
    const LinkSpec link = probe_link(group, 0);
    EXPECT_GT(link.latency_seconds, 0);
    EXPECT_LT(link.latency_seconds, 10);
  });
}

// One message of the first size takes longer than the time that is given, and is the last.
TEST(ProbeLink, EndsSoonOverAVerySlowLink) {
  run_local(2, [](Group& group) {
    SlowGroup slow(group, {.bits_per_second = 1e6, .latency_seconds = 0});
    const LinkSpec link = probe_link(slow, 0.01);
    EXPECT_LE(link.bits_per_second, 2.1e6);
    EXPECT_LT(slow.bytes_sent(), 20000u);
  });
}

// What a busy machine holds up is taken for the link's, so that the highest of three rates counts.
// No rate is far above the link's.
double highest_of_three(const std::function<ProbedLink()>& probe, const LinkSpec& link) {
  double highest = 0;
  for (int again = 0; again < 3; ++again) {
    const ProbedLink found = probe();
    EXPECT_LE(found.bits_per_second, 1.5 * link.bits_per_second);
    EXPECT_GE(found.latency_seconds, link.latency_seconds);
    if (!found.at_least) highest = std::max(highest, found.bits_per_second);
  }
  return highest;
}

// 16 KiB take a hundredth of a latency, which is taken off.
TEST(ProbeLink, FindsTheRateBesideALongLatency) {
  const LinkSpec link{.bits_per_second = 1e9, .latency_seconds = 0.05};
  for (const int ranks : {2, 4})
    run_local(ranks, [&](Group& group) {
      SlowGroup slow(group, link);
      EXPECT_GE(highest_of_three([&] { return probe_link(slow); }, link), 2.5e8);
    });
}

TEST(ProbeLink, FindsAKnownRateSooner) {
  const LinkSpec known{.bits_per_second = 1e9, .latency_seconds = 0.05};
  run_local(2, [&](Group& group) {
    SlowGroup slow(group, known);
    const double enough = 2 * least_probe_seconds(2, known);
    EXPECT_GE(highest_of_three([&] { return probe_link(slow, enough, known); }, known), 2.5e8);
    EXPECT_TRUE(probe_link(slow, 0.05, known).at_least);  // less than a round
  });
}

}  // namespace
}  // namespace thinwire::testing
