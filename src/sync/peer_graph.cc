// Peer graphs as functions of rank and round, so that receivers know their senders.
// SPDX-License-Identifier: Apache-2.0
#include "sync/peer_graph.h"

#include <algorithm>
#include <bit>

#include "core/check.h"
#include "core/random.h"

namespace thinwire {
namespace {

constexpr uint32_t kStream = 1;  // 0 shuffles samples

}  // namespace

std::vector<std::string_view> graph_names() {
  return {"one-peer", "exponential", "ring", "random"};
}

PeerGraph graph_named(std::string_view name) {
  const auto names = graph_names();
  const auto found = std::find(names.begin(), names.end(), name);
  THINWIRE_CHECK(found != names.end(), "gossip: no graph '" + std::string(name) + "'");
  return static_cast<PeerGraph>(found - names.begin());
}

bool is_regular(PeerGraph graph) noexcept { return graph != PeerGraph::kRandom; }

std::vector<int> peers_of(PeerGraph graph, int rank, int ranks, uint64_t round, uint64_t seed) {
  if (ranks == 1) return {};
  const auto further = [&](int by) { return (rank + by) % ranks; };
  const int distances = std::bit_width(static_cast<unsigned>(ranks - 1));
  switch (graph) {
    case PeerGraph::kOnePeer:
      return {further(1 << (round % static_cast<uint64_t>(distances)))};
    case PeerGraph::kExponential: {
      std::vector<int> peers;
      for (int j = 0; j < distances; ++j) peers.push_back(further(1 << j));
      return peers;
    }
    case PeerGraph::kRing:
      return {further(1)};
    case PeerGraph::kRandom: {
      const RandomKey key{
          .seed = seed, .use = RandomUse::kShuffle, .step = round, .stream = kStream};
      const auto others = static_cast<uint64_t>(ranks - 1);
      return {
          further(1 + static_cast<int>(random_below(key, static_cast<uint64_t>(rank), others)))};
    }
  }
  return {};
}

std::vector<int> senders_to(PeerGraph graph, int rank, int ranks, uint64_t round, uint64_t seed) {
  std::vector<int> senders;
  for (int other = 0; other < ranks; ++other) {
    const std::vector<int> peers = peers_of(graph, other, ranks, round, seed);
    if (std::find(peers.begin(), peers.end(), rank) != peers.end()) senders.push_back(other);
  }
  return senders;
}

}  // namespace thinwire
