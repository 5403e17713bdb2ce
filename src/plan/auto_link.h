// What ranks tell each other for codec "auto", on a channel of its own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "plan/step_watch.h"
#include "thinwire/group.h"

namespace thinwire {

class AutoLink {
 public:
  explicit AutoLink(Group& group) : channel_(group.split(0)) {}

  Group& channel() noexcept { return *channel_; }
  int size() const noexcept { return channel_->size(); }
  bool first() const noexcept { return channel_->rank() == 0; }

  // Of each time the latest of all ranks; on rank 0. All take part.
  WatchedStep latest(const WatchedStep& mine);

  // Rank 0's text, or value, on all ranks.
  std::string of_first(std::string text);
  template <typename T>
  requires std::is_trivially_copyable_v<T> T of_first(T value) {
    channel_->broadcast(std::as_writable_bytes(std::span(&value, 1)), 0);
    return value;
  }

  // Bytes since the last call.
  uint64_t take_sent();
  uint64_t take_received();

 private:
  std::unique_ptr<Group> channel_;
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace thinwire
