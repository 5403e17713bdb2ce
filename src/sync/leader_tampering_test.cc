// Tests of leader rounds in groups with one damaged message: no worker decides alone.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "exchange/testing/tampering_group.h"
#include "sync/testing/sync_testing.h"
#include "thinwire/frame.h"

namespace thinwire::testing {
namespace {

using Bytes = std::vector<std::byte>;

enum class Damage {
  kBit,
  kZeros,
  kReplay
};  // of an earlier message of the same sender, tag and size

// What one run came to.
struct TamperedRun {
  bool damaged = false;
  std::string error;
  ErrorCode code = ErrorCode::kOk;
  std::vector<std::vector<RoundReport>> reports;  // by rank
  // By rank: the leader's parameters, after each global round that counted.
  std::vector<std::vector<std::vector<float>>> led_by;
};

// Six steps, and so three rounds in groups and three of all. What `victim` receives as number `at`
// is damaged.
TamperedRun run(int n, const std::string& codec, int victim, int at, Damage damage) {
  TamperedRun out{.error = "",
                  .reports = std::vector<std::vector<RoundReport>>(static_cast<size_t>(n)),
                  .led_by = std::vector<std::vector<std::vector<float>>>(static_cast<size_t>(n))};
  try {
    run_local(n, [&](Group& group) {
      const auto me = static_cast<size_t>(group.rank());
      bool armed = false;  // agreeing on the run is no round
      int received = 0;
      std::map<std::tuple<int, int, size_t>, Bytes> last;
      TamperingGroup tampering(group, [&](int from, int tag, std::span<std::byte> message) {
        if (!armed || group.rank() != victim) return;
        Bytes& earlier = last[{from, tag, message.size()}];
        const Bytes before(message.begin(), message.end());
        if (received++ == at) {
          const auto place = static_cast<size_t>(at) * 37 % message.size();
          if (damage == Damage::kBit) message[place] ^= std::byte{1} << at % 8;
          if (damage == Damage::kZeros) std::fill(message.begin(), message.end(), std::byte{0});
          if (damage == Damage::kReplay && !earlier.empty())
            std::copy(earlier.begin(), earlier.end(), message.begin());
          out.damaged = !std::equal(message.begin(), message.end(), before.begin());
        }
        earlier = before;
      });
      Worker worker(tampering, {.method = "leader:tau=1,tau_global=2,groups=2", .codec = codec});
      armed = true;
      for (int step = 0; step < 6; ++step) {
        const auto report = worker.step();
        if (!report) continue;
        out.reports[me].push_back(*report);
        const auto led_by = worker.sync().led_by();
        if (report->global && !report->skipped)
          out.led_by[me].emplace_back(led_by.begin(), led_by.end());
      }
    });
  } catch (const Error& error) {
    out.error = error.what();
    out.code = error.code();
  }
  return out;
}

struct Case {
  const char* codec;
  int ranks;
};

class LeaderTampering : public ::testing::TestWithParam<Case> {};
std::string name_of(const ::testing::TestParamInfo<Case>& one) {
  return std::string(one.param.codec).substr(0, 4) + "On" + std::to_string(one.param.ranks);
}
INSTANTIATE_TEST_SUITE_P(Codecs, LeaderTampering,
                         ::testing::Values(Case{"int8", 3}, Case{"int8", 4}, Case{"int8", 5},
                                           Case{"fp32", 4}, Case{"sidco:density=0.1", 4}),
                         name_of);

// All who took part in a round have the same to say about it, and follow the same bits.
void expect_agreement(const TamperedRun& run) {
  std::map<std::pair<uint64_t, std::vector<int>>, const RoundReport*> rounds;
  bool skipped = false;
  for (const auto& reports : run.reports)
    for (const RoundReport& report : reports) {
      const RoundReport& first =
          *rounds.try_emplace({report.round, report.ranks}, &report).first->second;
      EXPECT_EQ(report.skipped, first.skipped) << "round " << report.round;
      EXPECT_EQ(report.leader, first.leader) << "round " << report.round;
      EXPECT_EQ(report.leaders, first.leaders) << "round " << report.round;
      EXPECT_EQ(report.fault.code, first.fault.code) << "round " << report.round;
      EXPECT_EQ(report.fault.rank, first.fault.rank) << "round " << report.round;
      skipped |= report.skipped;
    }
  for (const auto& led_by : run.led_by) {
    ASSERT_EQ(led_by.size(), run.led_by[0].size());
    for (size_t i = 0; i < led_by.size(); ++i) EXPECT_TRUE(same_bits(led_by[i], run.led_by[0][i]));
  }
  EXPECT_TRUE(skipped || !run.damaged) << "nobody noticed";
}

TEST_P(LeaderTampering, OneDamagedMessageHasAllSkipTheRoundOrEndsTheRun) {
  int skipped = 0, ended = 0;
  const auto [codec, n] = GetParam();
  for (int number = 0; number < 24 * n; ++number) {
    const int victim = number % n, at = number / n;
    const auto damage = static_cast<Damage>((at + victim) % 3);
    SCOPED_TRACE("rank " + std::to_string(victim) + ", message " + std::to_string(at) +
                 ", damage " + std::to_string((at + victim) % 3));
    const TamperedRun outcome = run(n, codec, victim, at, damage);
    if (!outcome.damaged) {
      EXPECT_EQ(outcome.error, "");
    } else if (!outcome.error.empty()) {
      ++ended;
      EXPECT_NE(outcome.code, ErrorCode::kTimeout) << outcome.error;
    } else {
      ++skipped;
    }
    if (outcome.error.empty()) expect_agreement(outcome);
  }
  EXPECT_GE(skipped, n) << "frames";
  EXPECT_GE(ended, n) << "losses and words";
}

// Sealed again, so that the checksum is right: only what the header says is wrong.
TEST(LeaderFrames, OfAnotherKindRoundOrPlaceAreCorrupt) {
  const std::function<void(FrameHeader&)> changes[] = {
      [](FrameHeader& header) { header.flags = kFrameRound; },
      [](FrameHeader& header) { header.flags = kFrameRound, header.round = 3; },
      [](FrameHeader& header) { header.flags = kFrameResult; },
      [](FrameHeader& header) { header.place = 1; },
      [](FrameHeader& header) { ++header.step; },
      [](FrameHeader& header) { header.stream = 0; },
      [](FrameHeader& header) { ++header.sender; },
  };
  for (const auto& change : changes)
    run_local(2, [&](Group& group) {
      TamperingGroup tampering(group, [&](int, int, std::span<std::byte> message) {
        Result<Frame> frame = read_frame(message);
        if (!frame) return;  // no frame
        FrameHeader header = frame.value().header;
        change(header);
        seal_frame(header, message.first(kFrameHeaderSize + header.payload_size));
      });
      Worker worker(tampering, {.method = "leader:tau=1,tau_global=1", .codec = "int8"});
      const auto report = worker.step();
      EXPECT_TRUE(report->skipped) << &change - changes;
      EXPECT_EQ(report->fault.code, ErrorCode::kCorrupt);
      EXPECT_EQ(report->fault.rank, report->leader);
    });
}

}  // namespace
}  // namespace thinwire::testing
