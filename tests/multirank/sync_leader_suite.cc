// Leader SGD: the paper's formula leader by leader, its special cases, what a round sends.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>

#include "multirank/ranks.h"
#include "sync/lsgd_oracle.h"
#include "sync/testing/sync_testing.h"

namespace thinwire::testing {
namespace {

class SyncLeader : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
  int n() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, SyncLeader, ::testing::ValuesIn(rank_counts()),
                         ::testing::PrintToStringParamName());

std::string lsgd(int groups, uint64_t tau, uint64_t tau_global, const std::string& more = "") {
  return "leader:groups=" + std::to_string(groups) + ",tau=" + std::to_string(tau) +
         ",tau_global=" + std::to_string(tau_global) + more;
}

TEST_P(SyncLeader, FollowsTheFormulaLeaderByLeaderOver200Steps) {
  for (const int groups : {1, 2, 3}) {
    if (groups > n()) continue;
    on_all([&](Group& group) {
      Worker worker(group, {.method = lsgd(groups, 4, 12, ",pull=0.2,pull_global=0.3,window=7")});
      LsgdOracle oracle{.ranks = n(),
                        .groups = groups,
                        .tau = 4,
                        .tau_global = 12,
                        .pull = 0.2f,
                        .pull_global = 0.3f,
                        .window = 7};
      const auto mine = static_cast<size_t>(group.rank());
      std::set<int> ever;
      int rounds = 0;
      for (uint64_t step = 1; step <= 200; ++step) {
        const auto report = worker.step();
        oracle.step();
        for (size_t i = 0; i < worker.x.size(); ++i)
          ASSERT_NEAR(worker.x[i], oracle.x[mine][i], 1e-6) << "step " << step << ", value " << i;
        if (!report) continue;
        ++rounds;
        ASSERT_FALSE(report->skipped);
        ASSERT_EQ(report->step, step);
        if (report->global) {
          EXPECT_EQ(report->leader, oracle.leader);
          EXPECT_EQ(report->leaders, oracle.leaders);
          ever.insert(report->leader);
        } else {
          const int my_group = group_of(group.rank(), n(), groups);
          ASSERT_EQ(report->leaders.size(), 1u);
          EXPECT_EQ(report->leaders[0], oracle.leaders[static_cast<size_t>(my_group)]);
        }
      }
      if (n() == 1) {
        EXPECT_EQ(rounds, 0);
      }
      if (groups == 1 && n() > 1) {
        EXPECT_EQ(rounds, 200 / 12);
      }
      if (groups == 2 && n() >= 4) {
        EXPECT_EQ(rounds, 200 / 4);
      }
      if (n() >= 4) {
        EXPECT_GT(ever.size(), 1u) << "a test of one leader only";
      }
    });
  }
}

// The proximal pull of the authors' later code, to where leaders were in their last round.
TEST_P(SyncLeader, FollowsTheFormulaWithProximalPulls) {
  if (n() == 1) return;  // who has nobody to be pulled to is not pulled to its past either
  const int groups = n() < 4 ? 1 : 2;  // nobody alone in a group
  on_all([&](Group& group) {
    Worker worker(group, {.method = lsgd(groups, 4, 12, ",window=7,prox=0.4,prox_global=0.6")});
    LsgdOracle oracle{.ranks = n(),
                      .groups = groups,
                      .tau = 4,
                      .tau_global = 12,
                      .pull = 0.1f,
                      .pull_global = 0.1f,
                      .window = 7,
                      .prox = 0.4f,
                      .prox_global = 0.6f};
    // Three roundings a step in float: after a hundred they are 1e-6.
    for (uint64_t step = 1; step <= 50; ++step) {
      worker.step();
      oracle.step();
      for (size_t i = 0; i < worker.x.size(); ++i)
        ASSERT_NEAR(worker.x[i], oracle.x[static_cast<size_t>(group.rank())][i], 1e-6)
            << "step " << step << ", value " << i;
    }
  });
}

// Judged by samples of its own choosing, not by training losses: here the last rank is always the
// best.
TEST_P(SyncLeader, AJudgeTakesThePlaceOfTrainingLosses) {
  if (n() == 1) return;
  on_all([&](Group& group) {
    int asked = 0;
    bool own = true;
    const float* parameters = nullptr;
    Worker worker(group, {.method = lsgd(1, 3, 3), .judge = [&](std::span<const float> x) {
                            ++asked;
                            own &= x.data() == parameters;
                            return -1.0 * group.rank();
                          }});
    parameters = worker.x.data();
    for (int step = 0; step < 9; ++step) {
      const auto report = worker.step();
      if (!report) continue;
      EXPECT_EQ(report->leader, n() - 1);
      EXPECT_EQ(report->losses[1], -1);
    }
    EXPECT_EQ(asked, 3) << "in rounds only";
    EXPECT_TRUE(own);
  });
}

// As in the authors' code: with one period for both there is the global pull alone.
TEST_P(SyncLeader, EqualPeriodsLeaveTheGlobalPullAlone) {
  if (n() < 2) return;
  on_all([&](Group& group) {
    Worker grouped(group, {.method = lsgd(2, 3, 3)});
    Worker flat(group, {.method = lsgd(1, 3, 3)});
    for (int step = 0; step < 30; ++step) {
      grouped.step();
      flat.step();
      ASSERT_TRUE(same_bits(grouped.x, flat.x)) << step;
    }
  });
}

TEST_P(SyncLeader, AFollowersZerosHaveTheLeadersSigns) {
  if (n() < 2) return;
  on_all([&](Group& group) {
    Worker worker(group, {.method = lsgd(1, 1, 1, ",pull_global=1")});
    if (group.rank() == 0) worker.x[5] = -0.0f;
    worker.sync().after_step(worker.x, group.rank());
    EXPECT_EQ(worker.x[5], 0);
    EXPECT_TRUE(std::signbit(worker.x[5]));
  });
}

TEST_P(SyncLeader, WithoutPullsIsIndependentSgdToTheBit) {
  on_all([&](Group& group) {
    Worker pulled(group, {.method = lsgd(std::min(2, n()), 2, 4, ",pull=0,pull_global=0")});
    Worker alone(group, {.method = lsgd(1, 1000, 1000)});
    for (int step = 0; step < 50; ++step) {
      pulled.step();
      alone.step();
      ASSERT_TRUE(same_bits(pulled.x, alone.x)) << step;
    }
  });
}

// Pulled with all strength, everybody has the leader's bits; the leader's own stay.
TEST_P(SyncLeader, ALeaderIsTheFixedPointOfItsOwnPull) {
  on_all([&](Group& group) {
    Worker worker(group, {.method = lsgd(1, 3, 3, ",pull_global=1")});
    Worker alone(group, {.method = lsgd(1, 1000, 1000)});
    for (int step = 0; step < 3; ++step) alone.step();
    for (int step = 0; step < 2; ++step) EXPECT_FALSE(worker.step());
    const auto report = worker.step();
    if (n() == 1) return;
    ASSERT_TRUE(report);
    if (report->leader == group.rank()) {
      EXPECT_TRUE(same_bits(worker.x, alone.x));
    }
    for (const auto& theirs : gather<float>(group, worker.x))
      EXPECT_TRUE(same_bits(theirs, worker.x));
  });
}

TEST_P(SyncLeader, ThePullShrinksTheDistanceByItsShare) {
  on_all([&](Group& group) {
    Worker worker(group, {.method = lsgd(1, 3, 3, ",pull_global=0.25")});
    Worker alone(group, {.method = lsgd(1, 1000, 1000)});
    std::optional<RoundReport> report;
    for (int step = 0; step < 3; ++step) {
      alone.step();
      report = worker.step();
    }
    if (!report) return;
    const auto before = gather<float>(group, alone.x)[static_cast<size_t>(report->leader)];
    for (size_t i = 0; i < worker.x.size(); ++i)
      EXPECT_NEAR(worker.x[i] - before[i], 0.75f * (alone.x[i] - before[i]), 1e-6);
  });
}

TEST_P(SyncLeader, EqualLossesMakeTheLowestRankLead) {
  on_all([&](Group& group) {
    const int groups = n() >= 4 ? 2 : 1;
    Worker worker(group, {.method = lsgd(groups, 1, 2)});
    worker.reported = [](double) { return 1.0; };
    const auto local = worker.step();
    const auto global = worker.step();
    if (n() == 1) return;
    const int mine = group_of(group.rank(), n(), groups);
    if (groups == 2) {
      EXPECT_EQ(local->leaders[0], mine == 0 ? 0 : (n() + 1) / 2);
    }
    EXPECT_EQ(global->leader, 0);
    EXPECT_EQ(global->leaders[static_cast<size_t>(mine)], mine == 0 ? 0 : (n() + 1) / 2);
  });
}

// Reference: one model received by all but its leader, and the losses; here frames and a word of
// agreement besides.
TEST_P(SyncLeader, ARoundReceivesOneModelAndTheLosses) {
  on_all([&](Group& group) {
    const uint64_t frame = 48 + 4 * kModelSize;
    const auto expected = [](int ranks, uint64_t models) {
      const auto others = static_cast<uint64_t>(ranks - 1);
      return models + 16 * others + 16 * std::bit_width(others);
    };
    Worker flat(group, {.method = lsgd(1, 1, 1)});
    const auto report = flat.step();
    EXPECT_EQ(report.has_value(), n() > 1);
    if (!report) return;
    const bool leads = report->leader == group.rank();
    EXPECT_EQ(report->received_bytes, expected(n(), leads ? 0 : frame));
    EXPECT_EQ(report->payload_bytes, 4 * kModelSize);
    EXPECT_EQ(report->values, kModelSize);

    if (n() % 2 != 0 || n() < 4) return;
    Worker grouped(group, {.method = lsgd(2, 1, 2)});
    const auto local = grouped.step();
    EXPECT_EQ(local->received_bytes,
              expected(n() / 2, local->leaders[0] == group.rank() ? 0 : frame));
    const auto both = grouped.step();
    const int mine = group_of(group.rank(), n(), 2);
    const bool leads_group = both->leaders[static_cast<size_t>(mine)] == group.rank();
    EXPECT_EQ(both->received_bytes, expected(n(), (leads_group ? 0 : frame) +
                                                      (both->leader == group.rank() ? 0 : frame)));
    EXPECT_EQ(both->payload_bytes, 2 * 4 * kModelSize);
    // One model goes from group to group, from head to head.
    const bool passes_on = group.rank() % (n() / 2) == 0 && both->leader / (n() / 2) == mine;
    EXPECT_EQ(both->between_bytes, passes_on ? frame : 0);
    EXPECT_EQ(local->between_bytes, 0u);
    // What everybody receives somebody has sent.
    const uint64_t numbers[] = {both->sent_bytes, both->received_bytes};
    uint64_t sent = 0, received = 0;
    for (const auto& theirs : gather<uint64_t>(group, numbers))
      sent += theirs[0], received += theirs[1];
    EXPECT_EQ(sent, received);
  });
}

// By default a group is a host.
TEST_P(SyncLeader, WorkersOfOneHostAreAGroup) {
  if (n() < 3) return;
  on_all([&](Group& group) {
    const std::string host = group.rank() % 2 == 0 ? "even" : "odd";
    Worker worker(group, {.method = "leader:tau=1,tau_global=2", .host = host});
    const auto local = worker.step();
    std::vector<int> expected;
    for (int r = group.rank() % 2; r < n(); r += 2) expected.push_back(r);
    EXPECT_EQ(local.has_value(), expected.size() > 1);
    if (local) {
      EXPECT_EQ(local->ranks, expected);
    }
    EXPECT_EQ(worker.step()->leaders.size(), 2u);

    Worker together(group, {.method = "leader:tau=1,tau_global=2", .host = "one"});
    EXPECT_FALSE(together.step());  // one group, no local pulls
    EXPECT_EQ(together.step()->leaders.size(), 1u);
  });
}

TEST_P(SyncLeader, TheCentreIsTheMeanAndChangesNobody) {
  on_all([&](Group& group) {
    Worker worker(group, {.method = lsgd(1, 4, 4)});
    for (int step = 0; step < 6; ++step) worker.step();
    const std::vector<float> before = worker.x;
    std::vector<float> centre(worker.x.size());
    worker.sync().centre(worker.x, centre);
    EXPECT_TRUE(same_bits(worker.x, before));
    std::vector<double> mean(centre.size());
    for (const auto& theirs : gather<float>(group, worker.x))
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += theirs[i] / static_cast<double>(n());
    for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(centre[i], mean[i], 1e-6);
    for (const auto& theirs : gather<float>(group, centre)) EXPECT_TRUE(same_bits(theirs, centre));
  });
}

}  // namespace
}  // namespace thinwire::testing
