// AutoLink: messages to rank 0 and from it.
// SPDX-License-Identifier: Apache-2.0
#include "plan/auto_link.h"

#include <algorithm>
#include <span>
#include <utility>

namespace thinwire {
namespace {

constexpr int kTag = 2;

}  // namespace

WatchedStep AutoLink::latest(const WatchedStep& mine) {
  std::vector<double> all = mine.ready;
  all.push_back(mine.step);
  if (!first()) {
    channel_->wait(channel_->send(std::as_bytes(std::span(all)), 0, kTag));
    return mine;
  }
  std::vector<std::vector<double>> others(static_cast<size_t>(channel_->size()) - 1,
                                          std::vector<double>(all.size()));
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (size_t i = 0; i < others.size(); ++i)
    transfers.push_back(channel_->receive(std::as_writable_bytes(std::span(others[i])),
                                          static_cast<int>(i) + 1, kTag));
  channel_->wait(transfers);
  for (const std::vector<double>& other : others)
    for (size_t i = 0; i < all.size(); ++i) all[i] = std::max(all[i], other[i]);
  WatchedStep latest{.step = all.back(), .ready = {}};
  all.pop_back();
  latest.ready = std::move(all);
  return latest;
}

std::string AutoLink::of_first(std::string text) {
  text.resize(channel_->max(first() ? text.size() : 0));
  channel_->broadcast(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

uint64_t AutoLink::take_sent() {
  return channel_->bytes_sent() - std::exchange(sent_, channel_->bytes_sent());
}

uint64_t AutoLink::take_received() {
  return channel_->bytes_received() - std::exchange(received_, channel_->bytes_received());
}

}  // namespace thinwire
