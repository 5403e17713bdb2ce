// What a C10dWorld keeps for another rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/c10d/c10d_world.h"
#include "comm/c10d/parcel.h"

namespace thinwire {

inline constexpr size_t kNotice = 256;  // bytes of the reason for a loss

// Of a message in a parcel.
enum C10dKind : uint32_t { kMessage, kLoss, kEnd };

// A parcel of messages to one rank; while the backend has it, what it reads stays where it is.
struct C10dWorld::Outgoing {
  Buffer memory;
  ParcelWriter writer;
  uint64_t ended = 0;  // messages to that rank that end here or earlier
  c10::intrusive_ptr<c10d::Work> work;
};

// A receive that the backend has; the work goes before what it writes to.
struct C10dWorld::Incoming {
  std::shared_ptr<Buffer> memory;
  c10::intrusive_ptr<c10d::Work> work;
};

// One rank's two threads.
struct C10dWorld::Peer {
  int rank = 0;
  std::thread sender, receiver;

  // Held from a message's first byte in a parcel to its last; taken before the world's.
  std::mutex writing;

  // Guarded by the world's mutex:
  std::deque<Outgoing> full;
  Outgoing open;          // the last one; away while somebody fills it
  uint64_t queued = 0;    // messages, in all
  uint64_t sent = 0;      // messages, in all
  uint64_t received = 0;  // whole messages
  std::deque<Incoming> posted;
  bool sender_ended = false;
  bool receiver_ended = false;

  // The receiver's:
  ParcelReader reader;
  Message coming;
};

}  // namespace thinwire
