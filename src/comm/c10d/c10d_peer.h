// What a C10dWorld has of another rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "comm/c10d/c10d_world.h"
#include "comm/c10d/parcel.h"

namespace thinwire {

// Of a message in a parcel.
enum C10dKind : uint32_t { kMessage, kLoss, kEnd };

// One rank's two threads.
struct C10dWorld::Peer {
  int rank = 0;
  std::thread sender, receiver;
  // Guarded by the world's mutex:
  std::deque<std::shared_ptr<Outgoing>> outbox;
  size_t under_way = 0;   // at the front of the outbox
  uint64_t queued = 0;    // messages, in all
  uint64_t received = 0;  // whole messages
  Works receiving;
  bool sender_ended = false;
  // The receiver's; a receive that will never end may still have one when the receiver has ended.
  std::array<std::array<std::byte, kHeadSize>, 2> heads = {};
};

// One parcel that the backend has; what it reads outlives its works.
struct C10dWorld::Transmission {
  Messages messages;
  PackedParcel parcel;
  Works works;
};

}  // namespace thinwire
