// Stochastic gradient push: what rounds conserve, where workers meet, what a message is.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "multirank/ranks.h"
#include "sync/peer_graph.h"
#include "sync/testing/sync_testing.h"

namespace thinwire::testing {
namespace {

class SyncGossip : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
  int n() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, SyncGossip, ::testing::ValuesIn(rank_counts()),
                         ::testing::PrintToStringParamName());

std::string gossip(std::string_view graph) { return "gossip:tau=1,graph=" + std::string(graph); }

void scatter(Worker& worker, int rank) {
  worker.rate = 0;
  for (size_t i = 0; i < worker.x.size(); ++i)
    worker.x[i] += 0.3f * static_cast<float>(rank + 1) * std::sin(static_cast<float>(i));
}

// x and, last, p, where the graph needs it; else z and 1.
std::vector<float> pushed_of(Worker& worker) {
  std::vector<float> pushed(worker.x.size() + 1);
  if (copy_state(worker.store().save(), "sync/gossip/pushed", pushed)) return pushed;
  std::copy(worker.x.begin(), worker.x.end(), pushed.begin());
  pushed.back() = 1;
  return pushed;
}

std::vector<double> sum_over_ranks(Group& group, std::span<const float> mine) {
  std::vector<double> sum(mine.size());
  for (const auto& theirs : gather<float>(group, mine))
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
  return sum;
}

TEST_P(SyncGossip, ConservesTheSumsOfXAndP) {
  for (const std::string_view graph : graph_names())
    on_all([&](Group& group) {
      Worker worker(group, {.method = gossip(graph), .seed = 9});
      scatter(worker, group.rank());
      worker.step();  // takes what the scattering did in
      const std::vector<double> before = sum_over_ranks(group, pushed_of(worker));
      EXPECT_NEAR(before.back(), n(), 1e-6 * n());
      for (int round = 0; round < 40; ++round) {
        worker.step();
        const std::vector<double> now = sum_over_ranks(group, pushed_of(worker));
        for (size_t i = 0; i < now.size(); ++i)
          ASSERT_NEAR(now[i], before[i], 1e-5 * n()) << graph << ", round " << round;
      }
    });
}

TEST_P(SyncGossip, WithoutStepsAllMeetAtTheMeanOfWhereTheyWere) {
  for (const std::string_view graph : graph_names())
    on_all([&](Group& group) {
      Worker worker(group, {.method = gossip(graph), .seed = 4});
      scatter(worker, group.rank());
      const std::vector<double> sum = sum_over_ranks(group, worker.x);
      for (int round = 0; round < (graph == "ring" ? 400 : 120); ++round) worker.step();
      for (size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(worker.x[i], sum[i] / n(), 1e-5) << graph;
    });
}

// Weights differ for a while where some receive more than others: without push-sum the mean would
// be missed.
TEST_P(SyncGossip, WeightsStayOneOnRegularGraphsOnly) {
  if (n() < 3) return;
  for (const std::string_view graph : graph_names())
    on_all([&](Group& group) {
      Worker worker(group, {.method = gossip(graph), .seed = 1});
      double furthest = 0;
      for (int round = 0; round < 20; ++round) {
        worker.step();
        for (const auto& theirs : gather<float>(group, pushed_of(worker)))
          furthest = std::max(furthest, std::abs(static_cast<double>(theirs.back()) - 1));
      }
      if (graph == "random") {
        EXPECT_GT(furthest, 0.2);
      } else {
        EXPECT_EQ(furthest, 0);
      }
    });
}

// One step of all workers against the definition, with local steps in between.
TEST_P(SyncGossip, FollowsTheDefinition) {
  for (const std::string_view name : graph_names())
    on_all([&](Group& group) {
      const PeerGraph graph = graph_named(name);
      Worker worker(group, {.method = gossip(name), .seed = 2});
      const auto ranks = static_cast<size_t>(n());
      std::vector<std::vector<double>> x(ranks, start_values<double>());
      std::vector<double> p(ranks, 1);
      for (uint64_t step = 0; step < 30; ++step) {
        auto next = std::vector<std::vector<double>>(ranks, std::vector<double>(x[0].size()));
        std::vector<double> next_p(ranks);
        for (int r = 0; r < n(); ++r) {
          const auto me = static_cast<size_t>(r);
          std::vector<double> z = x[me], gradient(z.size());
          for (double& value : z) value /= p[me];
          Quadratic().loss<double>(z, r, step, gradient);
          for (size_t i = 0; i < z.size(); ++i) x[me][i] -= static_cast<double>(0.1f) * gradient[i];
          std::vector<int> to = peers_of(graph, r, n(), step, 2);
          const double share = 1.0 / static_cast<double>(to.size() + 1);
          to.push_back(r);
          for (const int other : to) {
            const auto them = static_cast<size_t>(other);
            for (size_t i = 0; i < z.size(); ++i) next[them][i] += share * x[me][i];
            next_p[them] += share * p[me];
          }
        }
        x = next, p = next_p;
        worker.step();
        const auto me = static_cast<size_t>(group.rank());
        for (size_t i = 0; i < worker.x.size(); ++i)
          ASSERT_NEAR(worker.x[i], x[me][i] / p[me], 5e-6) << name << ", step " << step;
      }
    });
}

TEST_P(SyncGossip, ARoundSendsOneModelToEachPeer) {
  if (n() == 1) return;
  for (const std::string_view graph : graph_names())
    on_all([&](Group& group) {
      Worker worker(group, {.method = gossip(graph), .seed = 6});
      const auto report = worker.step();
      const size_t values = kModelSize + (graph == "random" ? 1 : 0);
      const auto to = peers_of(graph_named(graph), group.rank(), n(), 0, 6).size();
      const auto from = senders_to(graph_named(graph), group.rank(), n(), 0, 6).size();
      EXPECT_EQ(report->sent_bytes, to * (48 + 4 * values));
      EXPECT_EQ(report->received_bytes, from * (48 + 4 * values));
    });
}

}  // namespace
}  // namespace thinwire::testing
