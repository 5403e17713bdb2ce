// The peer graphs of gossip: which rank sends to which in a round.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace thinwire {

enum class PeerGraph : uint8_t {
  kOnePeer,      // to r + 2^(k mod b): one peer a round, b = ceil(log2 n) of them in turn
  kExponential,  // to r + 2^j for all j < b
  kRing,         // to r + 1
  kRandom,       // to one peer drawn for this rank and round, so that some receive nothing
};

// "one-peer", "exponential", "ring", "random"; they are the choices of the option.
std::vector<std::string_view> graph_names();
PeerGraph graph_named(std::string_view name);

// Whether all receive from as many as they send to, in every round: then push-sum weights stay 1.
bool is_regular(PeerGraph graph) noexcept;

// Whom `rank` sends to in `round`, in order, without itself; the same wherever it is computed.
// Nobody where there is nobody else.
std::vector<int> peers_of(PeerGraph graph, int rank, int ranks, uint64_t round, uint64_t seed);

// Who sends to `rank`, in rank order.
std::vector<int> senders_to(PeerGraph graph, int rank, int ranks, uint64_t round, uint64_t seed);

}  // namespace thinwire
