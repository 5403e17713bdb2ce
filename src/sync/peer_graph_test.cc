// Tests of peer graphs: who sends to whom, and that receivers know it.
// SPDX-License-Identifier: Apache-2.0
#include "sync/peer_graph.h"

#include <gtest/gtest.h>

namespace thinwire {
namespace {

TEST(PeerGraph, ReceiversAreTheSendersOfTheirSenders) {
  for (const std::string_view name : graph_names())
    for (int ranks = 1; ranks <= 9; ++ranks)
      for (uint64_t round = 0; round < 6; ++round) {
        const PeerGraph graph = graph_named(name);
        std::vector<std::vector<int>> senders(static_cast<size_t>(ranks));
        for (int r = 0; r < ranks; ++r)
          for (const int peer : peers_of(graph, r, ranks, round, 3)) {
            EXPECT_NE(peer, r);
            senders[static_cast<size_t>(peer)].push_back(r);
          }
        for (int r = 0; r < ranks; ++r) {
          const auto expected = senders[static_cast<size_t>(r)];
          EXPECT_EQ(senders_to(graph, r, ranks, round, 3), expected);
          if (is_regular(graph)) {
            EXPECT_EQ(expected.size(), peers_of(graph, r, ranks, round, 3).size());
          }
        }
      }
}

TEST(PeerGraph, OnePeerTakesTheDistancesInTurn) {
  std::vector<int> seen;
  for (uint64_t round = 0; round < 4; ++round)
    seen.push_back(peers_of(PeerGraph::kOnePeer, 6, 8, round, 0).at(0));
  EXPECT_EQ(seen, (std::vector<int>{7, 0, 2, 7}));
  EXPECT_EQ(peers_of(PeerGraph::kExponential, 6, 8, 5, 0), (std::vector<int>{7, 0, 2}));
}

}  // namespace
}  // namespace thinwire
