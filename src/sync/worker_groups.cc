// WorkerGroups: which group a rank is in, and the route of one vector to all workers.
// SPDX-License-Identifier: Apache-2.0
#include "sync/worker_groups.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

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

GroupTable::GroupTable(std::span<const int> colours, std::vector<int> those)
    : ranks(std::move(those)), group_of(colours.size(), -1) {
  std::unordered_map<int, int> known;  // groups by colour
  for (const int rank : ranks) {
    const auto count = static_cast<int>(members.size());
    const int group = known.try_emplace(colours[static_cast<size_t>(rank)], count).first->second;
    if (group == count) {
      members.emplace_back();
      heads.push_back(rank);
    }
    members[static_cast<size_t>(group)].push_back(rank);
    group_of[static_cast<size_t>(rank)] = group;
  }
}

WorkerGroups::WorkerGroups(Group& whole, std::span<const int> colours) : all_(&whole) {
  std::vector<int> ranks(static_cast<size_t>(whole.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  table_ = std::make_shared<GroupTable>(colours, std::move(ranks));
  index_ = group_of(whole.rank());
  own_ = whole.split(index_);
  heads_ = whole.split(own_->rank() == 0 ? 0 : 1);
}

WorkerGroups::WorkerGroups(Group& whole, std::span<const int> colours,
                           const std::vector<int>& ranks, uint64_t round, Salvage* salvage)
    : WorkerGroups(whole, std::make_shared<GroupTable>(colours, ranks), round, salvage) {}

WorkerGroups::WorkerGroups(Group& whole, std::shared_ptr<const GroupTable> table, uint64_t round,
                           Salvage* salvage)
    : table_(std::move(table)),
      index_(group_of(whole.rank())),
      own_all_(std::make_unique<MemberGroup>(whole, table_->ranks, round, salvage)) {
  all_ = own_all_.get();
  const std::vector<int>& mine = table_->members[static_cast<size_t>(index_)];
  own_ = std::make_unique<MemberGroup>(whole, mine, round, salvage);
  if (mine.front() == whole.rank())
    heads_ = std::make_unique<MemberGroup>(whole, table_->heads, round, salvage);
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
