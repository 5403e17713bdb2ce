// MessageWire: messages of any length between ranks, where those that come too late are dropped.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "thinwire/group.h"

namespace thinwire {

// Of the messages under one tag, from the oldest on.
struct MessageOrder {
  uint64_t generation = 0;  // of the object that sends: how often its like was made before
  uint64_t step = 0;
  uint64_t turn = 0;  // within the step

  friend auto operator<=>(const MessageOrder&, const MessageOrder&) = default;
};

struct WireMessage {
  std::unique_ptr<std::byte[]> bytes;
  size_t size = 0;
  uint64_t note = 0;  // as the sender gave it
  MessageOrder order;
};

// A rank that gives a step up may leave messages of it unread, and so does one whose receive was
// not answered in time. The receives after that skip these messages, so that both sides can go on
// with a later step. One thread at a time.
class MessageWire {
 public:
  explicit MessageWire(std::unique_ptr<Group> group) : group_(std::move(group)) {}

  int rank() const noexcept { return group_->rank(); }

  // Returns at once. REQUIRES: the group copies what it sends, or `bytes` stays until it has
  // arrived. Throws Error(kPeerLost) if rank `to` is lost.
  void send(std::span<const std::byte> bytes, uint64_t note, const MessageOrder& order, int to,
            int tag);

  // The next message under this tag that is not before `expected`. It may be after it. Throws
  // Error(kTimeout) at the deadline, and a later call then goes on; Error(kPeerLost); and
  // Error(kCorrupt) if the rank announces a message of more bytes than `limit`, and than all limits
  // before it under this tag.
  WireMessage receive(size_t limit, int from, int tag, const MessageOrder& expected,
                      std::chrono::milliseconds deadline);

 private:
  struct Head {
    uint64_t size = 0;
    uint64_t note = 0;
    MessageOrder order;
  };
  struct Sent {
    int to;
    std::unique_ptr<Head> head;
    std::unique_ptr<Transfer> transfers[2];
  };
  // What comes from one rank under one tag. A transfer is that of a receive under way.
  struct Lane {
    Head head;
    std::unique_ptr<Transfer> head_transfer;
    bool has_head = false;
    std::unique_ptr<std::byte[]> bytes;
    std::unique_ptr<Transfer> transfer;
    size_t limit = 0;
  };

  void look_at_sent(int to);
  void receive_next(Lane& lane, int from, int tag, Group::Instant until);

  const std::unique_ptr<Group> group_;
  std::vector<Sent> sent_;  // not known to have ended
  std::map<std::pair<int, int>, Lane> lanes_;
};

}  // namespace thinwire
