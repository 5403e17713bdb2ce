// Tests of asynchronous Leader SGD on threads: workers of different speed, late or lost workers,
// and runs repeated from a record.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "sync/testing/sync_testing.h"
#include "thinwire/survived.h"

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
  std::atomic<uint64_t> begun[kRanks] = {};
  run_local(kRanks, [&](Group& group) {
    Worker worker(group, {.method = kAsynchronous});
    std::vector<uint64_t> then(kRanks);
    // Worker 3 is slow by count: it waits until each of the others has begun two more steps, or for
    // 100 ms, as the others may be in a round. A nap alone is no slowness where all wait for a
    // core.
    worker.reported = [&](double loss) {
      ++begun[group.rank()];
      const auto until = std::chrono::steady_clock::now() + 100ms;
      const auto ahead = [&](int rank) {
        return begun[rank] >= then[static_cast<size_t>(rank)] + 2;
      };
      while (group.rank() == 3 && !(ahead(0) && ahead(1) && ahead(2)) &&
             std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(1ms);
      std::copy(std::begin(begun), std::end(begun), then.begin());
      return loss;
    };
    runs[static_cast<size_t>(group.rank())] =
        train(worker, 1ms, [](const Training& run) { return run.reports.size() == 6; });
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

// Workers end a run together by the number of a round, which may be one of groups.
TEST(AsyncLeader, AWorkerAloneInItsGroupHearsOfLocalRounds) {
  std::vector<Training> runs(3);
  run_local(3, [&](Group& group) {
    Worker worker(group, {.method = kAsynchronous});
    runs[static_cast<size_t>(group.rank())] =
        train(worker, 1ms, [](const Training& run) { return run.reports.size() == 3; });
    worker.sync().leave();
  });
  for (const Training& run : runs) EXPECT_EQ(run.reports.back().round, 2u);
  EXPECT_EQ(runs[2].reports.back().ranks, std::vector<int>{2});
  EXPECT_FALSE(runs[2].reports.back().skipped);
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

bool has(const RoundReport& report, int rank) {
  return std::find(report.ranks.begin(), report.ranks.end(), rank) != report.ranks.end();
}

// Its first step comes when the others have had rounds without it.
TEST(AsyncLeader, AWorkerMayJoinLate) {
  constexpr int kLate = 2;
  std::atomic<uint64_t> without{0}, begun{0};  // rounds; steps of rank 0
  uint64_t late = 0;                           // steps of the late worker, with the one under way
  std::atomic<bool> taken_in{false};
  std::vector<Training> runs(kRanks);
  run_local(kRanks, [&](Group& group) {
    Worker worker(group, {.method = "leader:groups=2,tau=5,tau_global=10,asynchronous=true,"
                                    "patience=0.05"});
    if (group.rank() == kLate)
      while (without < 3) std::this_thread::sleep_for(1ms);
    // The late worker stays behind rank 0 by count, not by the clock: a machine with other work may
    // run it while rank 0 waits for a core. It is two steps behind when it is let go for its last
    // one.
    worker.reported = [&](double loss) {
      if (group.rank() == 0) ++begun;
      if (group.rank() == kLate)
        for (++late; begun < late + 2 && !taken_in;) std::this_thread::sleep_for(1ms);
      return loss;
    };
    auto& run = runs[static_cast<size_t>(group.rank())];
    run = train(worker, 1ms, [&](const Training& so_far) {
      if (so_far.reports.empty()) return false;
      const RoundReport& last = so_far.reports.back();
      if (group.rank() == 0 && !has(last, kLate)) without = last.round + 1;
      if (group.rank() == 0 && last.global && has(last, kLate)) taken_in = true;
      return taken_in.load();
    });
    EXPECT_EQ(worker.sync().leave(), (std::vector<int>{0, 1, 2, 3}));
    EXPECT_TRUE(worker.sync().lost().empty());
  });
  EXPECT_GE(runs[kLate].reports.front().round, 3u);
  EXPECT_LT(runs[kLate].steps, runs[0].steps);
}

// What became of workers one of which is lost after three of its rounds, as `die` does it.
struct Survival {
  std::vector<Training> runs{kRanks};
  std::vector<std::vector<int>> left{kRanks};
  std::vector<std::vector<float>> centres{kRanks};
  std::vector<LostWorker> lost;  // to rank 0
};

constexpr int kLost = 2;

Survival survive(const std::string& method, const std::function<void(Worker&)>& die,
                 const std::function<double(int rank, size_t rounds, double loss)>& judge = nullptr,
                 Milliseconds deadline = 60s,
                 const std::function<bool(Worker&)>& may_end = nullptr) {
  Survival all;
  run_local(kRanks, [&](Group& group) {
    group.set_deadline(deadline);
    const auto me = static_cast<size_t>(group.rank());
    Training& run = all.runs[me];
    SynchroniserOptions options{.method = method};
    if (judge)
      options.judge = [&](std::span<const float>) {
        return judge(group.rank(), run.reports.size(), static_cast<double>(group.rank()));
      };
    Worker worker(group, options);
    const auto over = [&] {
      const auto& reports = run.reports;
      if (group.rank() == kLost) return reports.size() >= 3;
      if (may_end && !may_end(worker)) return false;
      return reports.size() >= 12 && reports.back().global && !has(reports.back(), kLost);
    };
    try {
      while (!over()) {
        std::this_thread::sleep_for(1ms);
        if (const auto report = worker.step()) run.reports.push_back(*report);
        ++run.steps;
      }
      if (group.rank() == kLost) return die(worker);
    } catch (const std::runtime_error& error) {
      if (group.rank() != kLost || !worker.sync().fail(error.what())) throw;
      return;
    }
    all.left[me] = worker.sync().leave();
    if (group.rank() == 0) all.lost = worker.sync().lost();
    run.x = worker.x;
    all.centres[me].resize(worker.x.size());
    worker.sync().centre(worker.x, all.centres[me]);
  });
  return all;
}

void expect_survived(const Survival& all) {
  for (const size_t rank : {0, 1, 3}) {
    EXPECT_EQ(all.left[rank], (std::vector<int>{0, 1, 3}));
    EXPECT_FALSE(all.runs[rank].reports.back().skipped);
    EXPECT_TRUE(same_bits(all.centres[rank], all.centres[0]));
  }
  for (size_t i = 0; i < all.centres[0].size(); ++i)
    EXPECT_NEAR(all.centres[0][i], (all.runs[0].x[i] + all.runs[1].x[i] + all.runs[3].x[i]) / 3,
                1e-6);
  ASSERT_EQ(all.lost.size(), 1u);
  EXPECT_EQ(all.lost[0].rank, kLost);
}

const std::string kSurviving = "leader:groups=2,tau=5,tau_global=10,asynchronous=true,patience=30";

TEST(AsyncLeader, AWorkerThatFailsIsNamedAndSurvived) {
  const auto since = std::chrono::steady_clock::now();
  const Survival all = survive(
      kSurviving, [](Worker& worker) { EXPECT_TRUE(worker.sync().fail("the disk is full")); });
  expect_survived(all);
  EXPECT_EQ(all.lost[0].why, "the disk is full");
  EXPECT_LT(std::chrono::steady_clock::now() - since, 20s) << "waited for whom it had lost";
}

TEST(AsyncLeader, AWorkerThatGoesWithoutAWordIsNamedToo) {
  const Survival all = survive(kSurviving, [](Worker&) {});
  expect_survived(all);
  EXPECT_THAT(all.lost[0].why, ::testing::HasSubstr("rank 2 left the group"));
}

// All have come, and wait for each other when one of them fails: who waits for a worker that has
// given the round up must not wait until the deadline.
TEST(AsyncLeader, AWorkerMayDieInARound) {
  const auto since = std::chrono::steady_clock::now();
  const Survival all = survive(
      "leader:groups=1,tau=5,tau_global=5,asynchronous=true,patience=30", [](Worker&) { FAIL(); },
      [](int rank, size_t rounds, double loss) {
        if (rank == kLost && rounds == 2) throw std::runtime_error("the samples are gone");
        return loss;
      });
  EXPECT_LT(std::chrono::steady_clock::now() - since, 20s) << "waited for whom it had lost";
  expect_survived(all);
  EXPECT_EQ(all.lost[0].why, "the samples are gone");
  for (const size_t rank : {0, 1, 3}) {
    const auto& reports = all.runs[rank].reports;
    const auto bad = std::count_if(reports.begin(), reports.end(),
                                   [](const RoundReport& report) { return report.skipped; });
    EXPECT_EQ(bad, 1) << rank;
    EXPECT_TRUE(reports[2].skipped);
    EXPECT_EQ(reports[2].fault.code, ErrorCode::kPeerLost);
  }
}

TEST(AsyncLeader, ASilentWorkerIsGivenUpAndTold) {
  std::string told;
  std::atomic<bool> given_up{false}, was_told{false};
  const Survival all = survive(
      "leader:groups=2,tau=5,tau_global=10,asynchronous=true,patience=0.1",
      [&](Worker& worker) {
        while (worker.step()) {
        }  // its last word is of a step, not of a round that it came to
        while (!given_up) std::this_thread::sleep_for(1ms);  // a word before that is no silence
        try {
          for (;; std::this_thread::sleep_for(1ms)) worker.step();
        } catch (const SurvivedError& error) {
          told = error.what();
        }
        was_told = true;
      },
      nullptr, 1s,
      [&](Worker& worker) {
        if (!worker.sync().lost().empty()) given_up = true;  // of rank 0 only
        return was_told.load();
      });
  expect_survived(all);
  EXPECT_EQ(all.lost[0].why, "said nothing for 900 ms");
  EXPECT_THAT(told, ::testing::HasSubstr("gave this one up"));
}

TEST(AsyncLeader, NobodySurvivesRankZeroOrALossWithoutPatience) {
  run_local(2, [&](Group& group) {
    Worker patient(group, {.method = "leader:asynchronous=true,patience=5"});
    Worker strict(group, {.method = "leader:asynchronous=true"});
    if (group.rank() == 0) {
      EXPECT_FALSE(patient.sync().fail("no reason"));
    }
    EXPECT_FALSE(strict.sync().fail("no reason"));
    patient.sync().leave();
    strict.sync().leave();
  });
  const auto lose = [](const std::string& more, int culprit) {
    run_local(kRanks, [&](Group& group) {
      Worker worker(group,
                    {.method = "leader:groups=1,tau=5,tau_global=5,asynchronous=true" + more});
      train(worker, 1ms, [&](const Training& run) {
        if (group.rank() == culprit && run.reports.size() == 2)
          throw std::runtime_error("the disk is full");
        return run.reports.size() == 10;
      });
    });
  };
  EXPECT_THROW(lose("", 2), std::runtime_error);
  EXPECT_THROW(lose(",patience=5", 0), std::runtime_error);
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
