// Outer steps on what workers did: diloco, sparseloco, downpour and parle against their formulas.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "multirank/ranks.h"
#include "sync/testing/sync_testing.h"

namespace thinwire::testing {
namespace {

using Vector = std::vector<double>;
using Vectors = std::vector<Vector>;  // by rank

constexpr double kRate = 0.1f;

class SyncOuter : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
  int n() const { return GetParam(); }
  void expect_diloco(SynchroniserOptions options);
  Vectors starts() const { return Vectors(static_cast<size_t>(n()), start_values<double>()); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, SyncOuter, ::testing::ValuesIn(rank_counts()),
                         ::testing::PrintToStringParamName());

Vector gradient_at(const Vector& x, int rank, uint64_t step) {
  Vector gradient(x.size());
  Quadratic().loss<double>(x, rank, step, gradient);
  return gradient;
}

Vector mean_of(const Vectors& all) {
  Vector mean(all[0].size());
  for (const Vector& one : all)
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += one[i] / static_cast<double>(all.size());
  return mean;
}

void expect_near(std::span<const float> x, const Vector& expected, uint64_t step, double bound) {
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], expected[i], bound) << "step " << step << ", value " << i;
}

// Also with one worker. Rounding: see SyncMeans.AveragingEveryStepIsDataParallelSgd.
TEST_P(SyncOuter, DilocoFollowsTheFormula) { expect_diloco({}); }

// The mean of the workers' velocities is the velocity of the mean, where all of it arrives.
TEST_P(SyncOuter, DilocoFollowsTheFormulaWithTheMomentumInTheMemory) {
  expect_diloco({.momentum = "memory"});
  expect_diloco({.codec = "topk:density=1"});  // by itself
}

TEST_P(SyncOuter, OnlyAnOuterStepHasAMomentumForTheMemory) {
  on_all([&](Group& group) {
    EXPECT_THROW(Worker(group, {.method = "average", .momentum = "memory"}), Error);
    EXPECT_THROW(Worker(group, {.method = "diloco", .momentum = "elsewhere"}), Error);
    EXPECT_NO_THROW(Worker(group, {.method = "average", .momentum = "optimizer"}));
  });
}

void SyncOuter::expect_diloco(SynchroniserOptions options) {
  options.method = "diloco:tau=5,rate=0.7,momentum=0.6";
  on_all([&](Group& group) {
    Worker worker(group, options);
    Vectors x = starts();
    Vector anchor = x[0], velocity(anchor.size());
    for (uint64_t step = 0; step < 200; ++step) {
      for (int r = 0; r < n(); ++r) {
        Vector& mine = x[static_cast<size_t>(r)];
        const Vector gradient = gradient_at(mine, r, step);
        for (size_t i = 0; i < mine.size(); ++i) mine[i] -= kRate * gradient[i];
      }
      const auto report = worker.step();
      EXPECT_EQ(report.has_value(), step % 5 == 4);
      if (step % 5 == 4) {
        const Vector mean = mean_of(x);
        for (size_t i = 0; i < anchor.size(); ++i) {
          const double outer = anchor[i] - mean[i];
          velocity[i] = 0.6f * velocity[i] + outer;
          anchor[i] -= 0.7f * (outer + 0.6f * velocity[i]);
        }
        for (Vector& mine : x) mine = anchor;
      }
      expect_near(worker.x, x[static_cast<size_t>(group.rank())], step, 4e-6);
    }
    std::vector<float> centre(worker.x.size());
    worker.sync().centre(worker.x, centre);
    expect_near(centre, anchor, 200, 4e-6);
  });
}

// The values of tensors that are sent compressed, by tensor; the bias between them is sent as it
// is.
constexpr std::pair<size_t, size_t> kCompressed[] = {{0, 45}, {50, 110}};

// Zeros but for the `share` of each compressed tensor with the largest magnitudes, and the bias.
Vector largest(const Vector& values, double share) {
  Vector kept = values;
  for (const auto& [begin, end] : kCompressed) {
    std::vector<size_t> order;
    for (size_t i = begin; i < end; ++i) order.push_back(i);
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return std::abs(values[a]) > std::abs(values[b]); });
    const auto count = static_cast<size_t>(std::lround(share * static_cast<double>(order.size())));
    for (size_t i = count; i < order.size(); ++i) kept[order[i]] = 0;
  }
  return kept;
}

TEST_P(SyncOuter, SparselocoFollowsTheFormula) {
  on_all([&](Group& group) {
    Worker worker(group,
                  {.method = "sparseloco:tau=5,rate=0.8,beta=0.9", .codec = "topk:density=0.2"});
    Vectors x = starts();
    Vector anchor = x[0];
    Vectors owed(x.size(), Vector(anchor.size()));
    for (uint64_t step = 0; step < 100; ++step) {
      for (int r = 0; r < n(); ++r) {
        Vector& mine = x[static_cast<size_t>(r)];
        const Vector gradient = gradient_at(mine, r, step);
        for (size_t i = 0; i < mine.size(); ++i) mine[i] -= kRate * gradient[i];
      }
      worker.step();
      if (step % 5 == 4) {
        Vectors sent;
        for (size_t r = 0; r < x.size(); ++r) {
          for (size_t i = 0; i < anchor.size(); ++i)
            owed[r][i] = 0.9f * owed[r][i] + (anchor[i] - x[r][i]);
          sent.push_back(largest(owed[r], 0.2));
          for (size_t i = 0; i < anchor.size(); ++i) owed[r][i] -= sent[r][i];
        }
        const Vector mean = mean_of(sent);
        for (size_t i = 0; i < anchor.size(); ++i) anchor[i] -= 0.8f * mean[i];
        for (Vector& mine : x) mine = anchor;
      }
      expect_near(worker.x, x[static_cast<size_t>(group.rank())], step, 4e-6);
    }
  });
}

// As published: what is owed outlives a round that does not count, also in a saved state.
TEST_P(SyncOuter, SparselocoKeepsWhatItOwesThroughASkippedRound) {
  on_all([&](Group& group) {
    const SynchroniserOptions options{.method = "sparseloco:tau=1", .codec = "topk:density=0.1"};
    Worker worker(group, options);
    worker.step();
    const auto before = worker.store().save();
    const std::vector<float> x = worker.x;
    if (group.rank() == 0) worker.x[3] = std::numeric_limits<float>::quiet_NaN();
    const auto report = worker.step();
    ASSERT_TRUE(report && report->skipped);
    const auto memory = [](const StateArrays& state) {
      std::vector<std::pair<std::string, std::vector<std::byte>>> arrays;
      for (const StateArray& array : state)
        if (array.name.find("residual") != std::string::npos)
          arrays.emplace_back(array.name, array.data);
      return arrays;
    };
    EXPECT_FALSE(memory(before).empty());
    EXPECT_EQ(memory(worker.store().save()), memory(before));
  });
}

TEST_P(SyncOuter, DilocoOfOneStepAtRateOneIsSgdOnTheMeanGradient) {
  on_all([&](Group& group) {
    Worker worker(group, {.method = "diloco:tau=1,rate=1,momentum=0"});
    Vector x = start_values<double>();
    for (uint64_t step = 0; step < 100; ++step) {
      Vectors gradients;
      for (int r = 0; r < n(); ++r) gradients.push_back(gradient_at(x, r, step));
      const Vector mean = mean_of(gradients);
      for (size_t i = 0; i < x.size(); ++i) x[i] -= kRate * mean[i];
      worker.step();
      expect_near(worker.x, x, step, (n() + 3) * 0x1p-24 * 20);
    }
  });
}

// The sum, not the mean.
TEST_P(SyncOuter, DownpourOfOneStepIsSgdOnTheSumOfGradients) {
  on_all([&](Group& group) {
    Worker worker(group, {.method = "downpour:tau=1"});
    worker.rate = 0.02f;
    Vector x = start_values<double>();
    for (uint64_t step = 0; step < 100; ++step) {
      Vector sum(x.size());
      for (int r = 0; r < n(); ++r) {
        const Vector gradient = gradient_at(x, r, step);
        for (size_t i = 0; i < x.size(); ++i) sum[i] += gradient[i];
      }
      for (size_t i = 0; i < x.size(); ++i) x[i] -= static_cast<double>(0.02f) * sum[i];
      worker.step();
      // n times the mean's error of n + 3 roundings, forgotten in 1 / (0.02 x 0.5 x n) steps.
      expect_near(worker.x, x, step, (n() + 3) * 0x1p-24 * 100);
    }
  });
}

TEST_P(SyncOuter, ParleOfOneWorkerOneStepAndNoPullsIsSgd) {
  if (n() > 1) return;
  on_all([&](Group& group) {
    Worker worker(group, {.method = "parle:tau=1,gamma=0,rho=0,average=0"});
    Worker alone(group, {.method = "average:tau=1000"});
    for (uint64_t step = 0; step < 50; ++step) {
      worker.step();
      alone.step();
      for (size_t i = 0; i < alone.x.size(); ++i) ASSERT_NEAR(worker.x[i], alone.x[i], 1e-6);
    }
  });
}

// Entropy-SGD [Chaudhari et al., ICLR 2017]: x <- z of an inner loop that is pulled to x.
TEST_P(SyncOuter, ParleOfOneWorkerIsEntropySgd) {
  if (n() > 1) return;
  on_all([&](Group& group) {
    Worker worker(group, {.method = "parle:tau=7,gamma=0.2,rho=0,average=0.75,rate=0.9"});
    Vector x = start_values<double>(), y = x, z = x;
    for (uint64_t step = 0; step < 140; ++step) {
      const Vector gradient = gradient_at(y, 0, step);
      for (size_t i = 0; i < x.size(); ++i) {
        y[i] -= kRate * (gradient[i] + static_cast<double>(0.2f) * (y[i] - x[i]));
        z[i] = 0.75 * z[i] + 0.25 * y[i];
      }
      if (step % 7 == 6) {
        for (size_t i = 0; i < x.size(); ++i) x[i] -= static_cast<double>(0.9f) * (x[i] - z[i]);
        y = z = x;
      }
      EXPECT_FALSE(worker.step());
      expect_near(worker.x, y, step, 1e-6);
    }
  });
}

// x_i <- x_i - lr g_i - rho (x_i - mean), both at the old x.
TEST_P(SyncOuter, ParleOfOneStepWithoutInnerPullIsElasticSgd) {
  if (n() == 1) return;
  on_all([&](Group& group) {
    Worker worker(group, {.method = "parle:tau=1,gamma=0,rho=0.25,average=0"});
    Vectors x = starts();
    for (uint64_t step = 0; step < 100; ++step) {
      const Vector mean = mean_of(x);
      for (int r = 0; r < n(); ++r) {
        Vector& mine = x[static_cast<size_t>(r)];
        const Vector gradient = gradient_at(mine, r, step);
        for (size_t i = 0; i < mine.size(); ++i)
          mine[i] -= kRate * gradient[i] + 0.25 * (mine[i] - mean[i]);
      }
      ASSERT_TRUE(worker.step());
      expect_near(worker.x, x[static_cast<size_t>(group.rank())], step, 1e-6);
    }
  });
}

// gamma and rho grow by 1 + 1/(2 B) with each outer step, up to 1 and 10.
TEST_P(SyncOuter, ParleScopesItsPulls) {
  if (n() == 1) return;
  on_all([&](Group& group) {
    Worker worker(group, {.method = "parle:tau=2,gamma=0.1,rho=0.05,average=0,batches=1"});
    worker.rate = 0;
    std::vector<float> zero(worker.x.size()), gradient = zero;
    for (size_t i = 0; i < worker.x.size(); ++i)
      worker.x[i] += 0.1f * static_cast<float>(group.rank() + 1);  // 0.1 (r + 1) from the replica
    double away = 0.1 * (group.rank() + 1);
    for (int outer = 0; outer < 8; ++outer) {
      gradient = zero;
      worker.sync().adjust_gradient(worker.x, gradient);
      EXPECT_NEAR(gradient[3], std::min(0.1 * std::pow(1.5, outer), 1.0) * away, 1e-6) << outer;
      worker.step();
      worker.step();
      away = 0;  // y goes on from the replica
    }
    // Replicas moved to 0.1 (r + 1), then towards each other by rho of each of seven outer steps
    // more.
    double left = 1;
    for (int outer = 1; outer < 8; ++outer) left *= 1 - 0.05 * std::pow(1.5, outer);
    const auto all = gather<float>(group, worker.x);
    EXPECT_NEAR(all[1][3] - all[0][3], 0.1 * left, 1e-6);
  });
}

}  // namespace
}  // namespace thinwire::testing
