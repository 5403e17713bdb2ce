// WorkerGroups: which group a rank is in, and the route of one vector to all workers.
// SPDX-License-Identifier: Apache-2.0
#include "sync/worker_groups.h"

#include <algorithm>
#include <numeric>

namespace thinwire {
namespace {

int place_of(std::span<const int> list, int value) {
  return static_cast<int>(std::find(list.begin(), list.end(), value) - list.begin());
}

}  // namespace

std::vector<int> neighbour_colours(int ranks, int count) {
  std::vector<int> colours;
  for (int r = 0; r < ranks; ++r) colours.push_back(static_cast<int>(int64_t{r} * count / ranks));
  return colours;
}

std::vector<int> host_colours(Group& group, const std::string& host) {
  const auto hosts = group.all_gather_v(std::as_bytes(std::span(host)), 4096);
  std::vector<int> colours;
  for (const auto& one : hosts)
    colours.push_back(static_cast<int>(std::find(hosts.begin(), hosts.end(), one) - hosts.begin()));
  return colours;
}

WorkerGroups::WorkerGroups(Group& whole, std::span<const int> colours)
    : ranks_(static_cast<size_t>(whole.size())), all_(&whole) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
  number(whole.rank(), colours);
  own_ = whole.split(index_);
  heads_ = whole.split(own_->rank() == 0 ? 0 : 1);
}

WorkerGroups::WorkerGroups(Group& whole, std::span<const int> colours,
                           const std::vector<int>& ranks, uint64_t round, Salvage* salvage)
    : ranks_(ranks), own_all_(std::make_unique<MemberGroup>(whole, ranks, round, salvage)) {
  all_ = own_all_.get();
  number(whole.rank(), colours);
  const std::vector<int>& mine = members_[static_cast<size_t>(index_)];
  own_ = std::make_unique<MemberGroup>(whole, mine, round, salvage);
  if (mine.front() == whole.rank())
    heads_ = std::make_unique<MemberGroup>(whole, heads(), round, salvage);
}

void WorkerGroups::number(int rank, std::span<const int> colours) {
  std::vector<int> known;  // colours in order of appearance
  for (const int r : ranks_) {
    const int colour = colours[static_cast<size_t>(r)];
    const auto group = static_cast<size_t>(place_of(known, colour));
    if (group == known.size()) {
      known.push_back(colour);
      members_.emplace_back();
    }
    members_[group].push_back(r);
  }
  index_ = group_of(rank);
}

std::vector<int> WorkerGroups::heads() const {
  std::vector<int> first;
  for (const auto& group : members_) first.push_back(group.front());
  return first;
}

int WorkerGroups::group_of(int rank) const {
  const auto has = [&](const std::vector<int>& group) {
    return std::find(group.begin(), group.end(), rank) != group.end();
  };
  return static_cast<int>(std::find_if(members_.begin(), members_.end(), has) - members_.begin());
}

int WorkerGroups::rank_in_group(int rank) const { return place_of(members(group_of(rank)), rank); }

std::vector<Hop> WorkerGroups::route_in_group(int owner) {
  return {{.group = own_.get(), .root = rank_in_group(owner)}};
}

std::vector<Hop> WorkerGroups::route_to_all(int owner) {
  const int from = group_of(owner);
  std::vector<Hop> route;
  if (index_ == from) route = route_in_group(owner);
  if (own_->rank() == 0) route.push_back({.group = heads_.get(), .root = from});
  if (index_ != from) route.push_back({.group = own_.get(), .root = 0});
  return route;
}

uint64_t WorkerGroups::bytes_sent() const noexcept {
  return all_->bytes_sent() + own_->bytes_sent() + bytes_between();
}

uint64_t WorkerGroups::bytes_received() const noexcept {
  return all_->bytes_received() + own_->bytes_received() + (heads_ ? heads_->bytes_received() : 0);
}

uint64_t WorkerGroups::bytes_between() const noexcept { return heads_ ? heads_->bytes_sent() : 0; }

}  // namespace thinwire
