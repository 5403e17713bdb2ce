// Asynchronous leader SGD on threads: workers of different speed, late, lost, and repeated from a record.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <thread>

#include "sync/sync_testing.h"

namespace thinwire::testing {
namespace {

using namespace std::chrono_literals;
using Milliseconds = std::chrono::milliseconds;

constexpr int kRanks = 4;

// What became of one worker.
struct Training {
  std::vector<RoundReport> reports;
  uint64_t steps = 0;
  std::vector<float> x;
};

// Steps until `stop` says so after one of them, a nap before each.
Training train(Worker& worker, Milliseconds nap, const std::function<bool(const Training&)>& stop) {
  Training run;
  do {
    std::this_thread::sleep_for(nap);
    if (const auto report = worker.step()) run.reports.push_back(*report);
    ++run.steps;
  } while (!stop(run));
  run.x = worker.x;
  return run;
}

const std::string kAsynchronous = "leader:groups=2,tau=5,tau_global=10,asynchronous=true,window=3";

std::vector<RecordedRound> record_of(const Training& run) {
  std::vector<RecordedRound> rounds;
  for (const RoundReport& report : run.reports)
    rounds.push_back({.round = report.round, .step = report.step, .ranks = report.ranks});
  return rounds;
}

TEST(AsyncLeader, FastWorkersTakeMoreStepsAndRoundsCountThemAll) {
  std::vector<Training> runs(kRanks);
  run_local(kRanks, [&](Group& group) {
    Worker worker(group, {.method = kAsynchronous});
    runs[static_cast<size_t>(group.rank())] =
        train(worker, group.rank() == 3 ? 8ms : 1ms,
              [](const Training& run) { return run.reports.size() == 6; });
    worker.sync().leave();
  });
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_GT(runs[static_cast<size_t>(rank)].steps, runs[3].steps);
  for (uint64_t round = 0; round < 6; ++round) {
    uint64_t steps = 0;
    for (const Training& run : runs) {
      EXPECT_EQ(run.reports[round].round, round);
      EXPECT_EQ(run.reports[round].global, round % 2 == 1);
      steps += run.reports[round].step;
    }
    EXPECT_GE(steps, kRanks * 5 * (round + 1)) << "a round before its time";
  }
}

// What workers do between rounds is theirs; when they come is all that a clock decides.
TEST(AsyncLeader, ARecordedRunRepeatsBitForBit) {
  std::vector<Training> runs(kRanks), again(kRanks);
  run_local(kRanks, [&](Group& group) {
    Worker worker(group, {.method = kAsynchronous});
    runs[static_cast<size_t>(group.rank())] =
        train(worker, Milliseconds(1 + group.rank()),
              [](const Training& run) { return run.reports.size() == 8; });
    worker.sync().leave();
  });
  run_local(kRanks, [&](Group& group) {
    const auto me = static_cast<size_t>(group.rank());
    Worker worker(group, {.method = kAsynchronous, .recorded = record_of(runs[me])});
    again[me] = train(worker, Milliseconds(4 - group.rank()),  // other speeds
                      [&](const Training& run) { return run.steps == runs[me].steps; });
    worker.sync().leave();
  });
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(same_bits(runs[rank].x, again[rank].x)) << rank;
    ASSERT_EQ(runs[rank].reports.size(), again[rank].reports.size());
    for (size_t i = 0; i < runs[rank].reports.size(); ++i) {
      EXPECT_EQ(runs[rank].reports[i].losses, again[rank].reports[i].losses);
      EXPECT_EQ(runs[rank].reports[i].leaders, again[rank].reports[i].leaders);
    }
  }
}

TEST(AsyncLeader, WorkersMayLeaveAtDifferentTimes) {
  std::vector<Training> runs(kRanks);
  run_local(kRanks, [&](Group& group) {
    Worker worker(group, {.method = kAsynchronous, .codec = "int8"});
    runs[static_cast<size_t>(group.rank())] = train(worker, 1ms, [&](const Training& run) {
      return run.reports.size() == static_cast<size_t>(2 + 2 * group.rank());
    });
    worker.sync().leave();
  });
  for (const RoundReport& report : runs[3].reports) EXPECT_FALSE(report.skipped);
  EXPECT_EQ(runs[0].reports.back().ranks, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(runs[3].reports.back().ranks, (std::vector<int>{3}));
}

TEST(AsyncLeader, ALateWorkerIsLeftBehindAndTakenInAgain) {
  std::mutex mutex;
  std::vector<Training> runs(kRanks);
  run_local(kRanks, [&](Group& group) {
    Worker worker(group, {.method = "leader:groups=1,tau=5,tau_global=5,asynchronous=true,"
                                    "patience=0.05"});
    Training run;
    const bool late = group.rank() == 1;
    bool slept = false;
    for (int step = 0; step < 4000; ++step) {
      std::this_thread::sleep_for(1ms);
      if (const auto report = worker.step()) run.reports.push_back(*report);
      ++run.steps;
      if (late && !slept && run.reports.size() == 2) {
        slept = true;
        std::this_thread::sleep_for(700ms);
      }
      // Everybody stops some rounds after all were together again.
      const bool back = std::any_of(
          run.reports.begin() + std::min<long>(3, std::ssize(run.reports)), run.reports.end(),
          [](const RoundReport& r) { return r.ranks.size() == kRanks; });
      const bool without =
          std::any_of(run.reports.begin(), run.reports.end(),
                      [](const RoundReport& r) { return r.ranks.size() < kRanks; });
      if (run.reports.size() > 8 && back && (without || late)) break;
    }
    worker.sync().leave();
    const std::lock_guard lock(mutex);
    runs[static_cast<size_t>(group.rank())] = std::move(run);
  });
  bool without = false;
  for (const RoundReport& report : runs[0].reports) {
    EXPECT_FALSE(report.skipped);
    without |= std::find(report.ranks.begin(), report.ranks.end(), 1) == report.ranks.end();
  }
  EXPECT_TRUE(without) << "all waited for the late worker";
  // Rounds that it missed have numbers.
  EXPECT_GT(runs[1].reports.back().round + 1, runs[1].reports.size());
}

TEST(AsyncLeader, ALostWorkerIsSurvived) {
  constexpr int kLost = 2;
  const auto has_lost = [&](const RoundReport& report) {
    return std::find(report.ranks.begin(), report.ranks.end(), kLost) != report.ranks.end();
  };
  std::vector<Training> runs(kRanks);
  const auto since = std::chrono::steady_clock::now();
  run_local(kRanks, [&](Group& group) {
    Worker worker(group, {.method = "leader:groups=2,tau=5,tau_global=10,asynchronous=true,"
                                    "patience=30"});
    const auto enough = [&](const Training& run) {
      if (group.rank() == kLost) return run.reports.size() == 3;
      return run.reports.size() >= 12 && run.reports.back().global && !has_lost(run.reports.back());
    };
    runs[static_cast<size_t>(group.rank())] = train(worker, 1ms, enough);
    if (group.rank() == kLost) return;  // without a word
    worker.sync().leave();
  });
  for (const int rank : {0, 1, 3}) {
    const auto& reports = runs[static_cast<size_t>(rank)].reports;
    const auto together = std::count_if(reports.begin(), reports.end(), has_lost);
    EXPECT_LT(together, std::ssize(reports));
    EXPECT_FALSE(reports.back().skipped);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - since, 30s) << "waited for whom it had lost";
}

TEST(AsyncLeader, RefusesWhatCannotBe) {
  const auto with = [](const std::string& more, const std::string& codec) {
    return [=] {
      run_local(2,
                [&](Group& group) { Worker(group, {.method = "leader:" + more, .codec = codec}); });
    };
  };
  using ::testing::HasSubstr;
  using ::testing::ThrowsMessage;
  EXPECT_THAT(with("patience=1", "fp32"), ThrowsMessage<Error>(HasSubstr("asynchronous workers")));
  EXPECT_THAT(with("asynchronous=true,patience=1", "int8"),
              ThrowsMessage<Error>(HasSubstr("need a lossless codec, not 'int8'")));
  EXPECT_THAT(with("asynchronous=true,patience=100000", "fp32"),
              ThrowsMessage<Error>(HasSubstr("below the group's deadline")));
}

}  // namespace
}  // namespace thinwire::testing
