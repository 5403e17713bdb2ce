// Traces the frames of a round as sync/leader.cc sends them, and counts its losses and agreement.
// SPDX-License-Identifier: Apache-2.0
#include "plan/leader_round.h"

#include <array>
#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>

#include "comm/sealed_words.h"
#include "sync/worker_groups.h"

namespace thinwire {
namespace {

void send_frame(TraceGroup& whole, const LeaderRound& round, const std::vector<Hop>& route) {
  std::array<std::byte, sizeof(uint64_t)> size{};
  for (const Hop& hop : route) {
    if (round.announced) hop.group->broadcast(size, hop.root);
    whole.set_scale(round.frame_bytes);
    hop.group->broadcast(std::span(size).first(1), hop.root);
    whole.set_scale(1);
  }
}

}  // namespace

std::vector<RankTrace> trace_leader_round(const LeaderRound& round) {
  const int n = static_cast<int>(round.colours.size());
  std::vector<int> ranks(round.colours.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto table = std::make_shared<const GroupTable>(round.colours, std::move(ranks));
  std::vector<RankTrace> traces;
  for (int rank = 0; rank < n; ++rank) {
    TraceGroup whole(rank, n);
    WorkerGroups groups(whole, table, 0, nullptr);
    if (round.local && groups.own().size() > 1)
      send_frame(whole, round,
                 groups.route_in_group(round.own_leaders[static_cast<size_t>(groups.index())]));
    if (round.global) send_frame(whole, round, groups.route_to_all(round.leader));
    traces.push_back(whole.trace());
  }
  return traces;
}

LeaderWords leader_words(int circle) {
  LeaderWords words{.bytes = (circle - 1.0) * sizeof(SealedWord), .messages = circle > 1 ? 1 : 0};
  for (int distance = 1; distance < circle; distance *= 2) {
    words.bytes += sizeof(SealedWord);
    ++words.messages;
  }
  return words;
}

}  // namespace thinwire
