// Methods that average: what they compute, and what a round sends.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>

#include "multirank/ranks.h"
#include "sync/testing/sync_testing.h"

namespace thinwire::testing {
namespace {

using Vectors = std::vector<std::vector<double>>;  // by rank

class SyncMeans : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
  int n() const { return GetParam(); }

  Vectors starts() const { return Vectors(static_cast<size_t>(n()), start_values<double>()); }

  // One SGD step of every worker, in double.
  void step_all(Vectors& x, uint64_t step) const {
    for (int r = 0; r < n(); ++r) {
      auto& mine = x[static_cast<size_t>(r)];
      std::vector<double> gradient(mine.size());
      Quadratic().loss<double>(mine, r, step, gradient);
      for (size_t i = 0; i < mine.size(); ++i) mine[i] -= 0.1f * gradient[i];
    }
  }

  std::vector<double> mean_of(const Vectors& x) const {
    std::vector<double> mean(x[0].size());
    for (const auto& one : x)
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += one[i] / n();
    return mean;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, SyncMeans, ::testing::ValuesIn(rank_counts()),
                         ::testing::PrintToStringParamName());

void expect_near(std::span<const float> x, const std::vector<double>& expected, uint64_t step,
                 double bound = 1e-6) {
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], expected[i], bound) << "step " << step << ", value " << i;
}

// With the mean gradient at one place, which is what workers that agree before each step have. A
// mean rounds n + 1 times by half a unit of 2^-23, and SGD forgets in 1 / (0.1 x 0.5) steps.
TEST_P(SyncMeans, AveragingEveryStepIsDataParallelSgd) {
  on_all([&](Group& group) {
    Worker worker(group, {.method = "average:tau=1"});
    std::vector<double> x = start_values<double>();
    for (uint64_t step = 0; step < 100; ++step) {
      std::vector<double> mean(x.size()), gradient(x.size());
      for (int r = 0; r < n(); ++r) {
        Quadratic().loss<double>(x, r, step, gradient);
        for (size_t i = 0; i < x.size(); ++i) mean[i] += gradient[i] / n();
      }
      for (size_t i = 0; i < x.size(); ++i) x[i] -= 0.1f * mean[i];
      worker.step();
      expect_near(worker.x, x, step, (n() + 1) * 0x1p-24 * 20);
    }
  });
}

TEST_P(SyncMeans, AveragingLeavesAllWithTheSameBits) {
  on_all([&](Group& group) {
    Worker worker(group, {.method = "average:tau=5"});
    for (uint64_t step = 1; step <= 20; ++step) {
      const auto report = worker.step();
      EXPECT_EQ(report.has_value(), n() > 1 && step % 5 == 0);
      if (!report) continue;
      EXPECT_EQ(report->round, step / 5 - 1);
      for (const auto& theirs : gather<float>(group, worker.x))
        EXPECT_TRUE(same_bits(theirs, worker.x));
    }
  });
}

TEST_P(SyncMeans, EasgdFollowsTheFormula) {
  on_all([&](Group& group) {
    Worker worker(group, {.method = "easgd:tau=3,rate=0.6"});
    Vectors x = starts();
    std::vector<double> centre = x[0];
    for (uint64_t step = 0; step < 200; ++step) {
      step_all(x, step);
      worker.step();
      if (n() > 1 && (step + 1) % 3 == 0) {
        const std::vector<double> mean = mean_of(x), old = centre;
        for (size_t i = 0; i < old.size(); ++i) {
          for (auto& one : x) one[i] -= 0.6 / n() * (one[i] - old[i]);
          centre[i] += 0.6 * (mean[i] - old[i]);
        }
      }
      expect_near(worker.x, x[static_cast<size_t>(group.rank())], step);
    }
    std::vector<float> judged(worker.x.size());
    worker.sync().centre(worker.x, judged);
    expect_near(judged, n() > 1 ? centre : x[0], 200);
  });
}

// What workers lose the centre gains: their sum stays. Without a centre theirs does.
TEST_P(SyncMeans, EasgdConservesTheSum) {
  for (const std::string centre : {"variable", "mean"})
    on_all([&](Group& group) {
      Worker worker(group, {.method = "easgd:tau=1,rate=0.5,centre=" + centre});
      worker.rate = 0;
      for (size_t i = 0; i < worker.x.size(); ++i)
        worker.x[i] += static_cast<float>(group.rank()) * 0.1f * static_cast<float>(i % 3);
      const auto sum = [&] {
        std::vector<double> total(worker.x.size());
        for (const auto& theirs : gather<float>(group, worker.x))
          for (size_t i = 0; i < total.size(); ++i) total[i] += theirs[i];
        if (centre == "variable" && n() > 1) {
          std::vector<float> c(worker.x.size());
          worker.sync().centre(worker.x, c);
          for (size_t i = 0; i < total.size(); ++i) total[i] += c[i];
        }
        return total;
      };
      const std::vector<double> before = sum();
      const std::vector<float> x = worker.x;
      for (int round = 0; round < 10; ++round) worker.step();
      const std::vector<double> after = sum();
      for (size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-5);
      if (n() > 1 && group.rank() == n() - 1) {
        EXPECT_FALSE(same_bits(worker.x, x));
      }
    });
}

// Equal replicas at the centre do not move.
TEST_P(SyncMeans, EasgdLeavesEqualReplicasAtTheCentreAlone) {
  for (const std::string centre : {"variable", "mean"})
    on_all([&](Group& group) {
      Worker worker(group, {.method = "easgd:tau=1,rate=0.7,centre=" + centre});
      worker.rate = 0;
      for (int round = 0; round < 5; ++round) worker.step();
      for (size_t i = 0; i < worker.x.size(); ++i)
        EXPECT_NEAR(worker.x[i], start_values()[i], 1e-6);
    });
}

TEST_P(SyncMeans, OneWorkerIsSgdToTheBit) {
  if (n() > 1) return;
  on_all([&](Group& group) {
    Worker alone(group, {.method = "average:tau=1000"});
    Worker averaged(group, {.method = "average:tau=1"});
    Worker elastic(group, {.method = "easgd:tau=1,rate=0.9"});
    for (int step = 0; step < 30; ++step) {
      alone.step();
      averaged.step();
      elastic.step();
      EXPECT_TRUE(same_bits(alone.x, averaged.x));
      EXPECT_TRUE(same_bits(alone.x, elastic.x));
    }
  });
}

// As docs/collectives.md says of dense: 2 (n-1) (c/n + F) for a stream whose values n divides, and
// 16 bytes for each round of the agreement.
TEST_P(SyncMeans, ARoundSendsWhatADenseExchangeDoes) {
  on_all([&](Group& group) {
    for (const std::string method : {"average:tau=1", "easgd:tau=1"}) {
      Store store;
      std::vector<float> x(2520, 1.0f);
      const auto sync = make_synchroniser(group, store, {{"w", {2520}, TensorKind::kLinear}}, x,
                                          {.method = method});
      const auto report = sync->after_step(x, 1);
      if (n() == 1) {
        EXPECT_FALSE(report);
        continue;
      }
      const auto others = static_cast<uint64_t>(n() - 1);
      EXPECT_EQ(report->sent_bytes, 2 * others * (4 * 2520 / static_cast<uint64_t>(n()) + 48) +
                                        16 * static_cast<uint64_t>(std::bit_width(others)));
      EXPECT_EQ(report->received_bytes, report->sent_bytes);
      EXPECT_EQ(report->values, 2520u);
    }
  });
}

}  // namespace
}  // namespace thinwire::testing
