// Messages of thinwire's groups over one process group of torch.distributed.
//
// Point-to-point only, under one tag. Each pair of ranks has a queue in either direction, and each
// direction a thread, since a backend such as Gloo can wait for a message but not be asked whether it is
// there. Messages that wait for the same rank travel as one parcel, since a transfer of Gloo costs a
// handshake, 0.15 ms on busy cores, however short it is: parcel.h. For the same reason kUnderWay parcels
// are handed to the backend at a time, and the next head is received beside the rest of a parcel. Bytes
// behind the head go in pieces of at most kPiece.
// Who leaves, or is lost to a group, says how many messages it got: a sender may learn that its rank has
// left before it learns that what it sent has arrived.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <tuple>
#include <vector>

#include "core/buffer_pool.h"

namespace thinwire {

// One per process group, from the first use to close. All members by any thread.
class C10dWorld {
 public:
  // A context is a number that all members of a group agree on without talking.
  static constexpr uint64_t kEveryGroup = 0;
  static constexpr uint64_t kFirstContext = 1;

  // What a message waits in, in order: where from, and in which group under which tag.
  struct Lane {
    uint64_t context;
    int from;
    int tag;

    friend auto operator<=>(const Lane&, const Lane&) = default;
  };

  // A message that is on its way out.
  struct Outgoing {
    uint64_t number = 0;  // among those to the same rank
    uint64_t context = 0;
    int tag = 0;
    uint32_t kind = 0;
    Buffer bytes;
    bool sent = false;  // guarded by the world's mutex
  };

  // The world of this process group, with its threads. Throws Error(kUnsupported) for a backend that
  // moves tensors of the processor's memory neither itself nor through another one.
  static std::shared_ptr<C10dWorld> of(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

  // Ends all worlds of this process: called before the interpreter goes.
  static void close_all() noexcept;

  ~C10dWorld() = default;  // after close
  C10dWorld(const C10dWorld&) = delete;
  C10dWorld& operator=(const C10dWorld&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  // The bytes are copied.
  std::shared_ptr<const Outgoing> send(std::span<const std::byte> bytes, uint64_t context, int to,
                                       int tag);
  bool is_sent(const Outgoing& message);

  // The number of the next receive of a lane: it gets the message of that number.
  uint64_t next_receive(const Lane& lane);
  // Message `number` of the lane, once, when it is there; its memory is to be given back.
  std::optional<Buffer> take(const Lane& lane, uint64_t number);
  void give(Buffer& buffer);

  // Tells those ranks that this one is lost to the group `context`, or to all groups.
  void announce(uint64_t context, std::span<const int> ranks, std::string_view why) noexcept;
  // Why a rank is lost to a group; empty when it is not.
  std::string lost(uint64_t context, int rank);

  // The first context of a process group's groups, then others, as all its ranks call it alike.
  uint64_t new_base();

  // Returns when something arrived or was sent, at `until` at the latest.
  void await_change(std::chrono::steady_clock::time_point until);

  void sum(std::span<float> values);  // the process group's own all-reduce

 private:
  struct Peer;
  struct Inbox {
    uint64_t receives = 0;  // begun
    uint64_t first = 0;     // number of the message at the front
    std::deque<std::optional<Buffer>> messages;
  };

  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;
  using Messages = std::vector<std::shared_ptr<Outgoing>>;
  struct Transmission;

  explicit C10dWorld(c10::intrusive_ptr<c10d::ProcessGroup> group);
  bool close() noexcept;
  Buffer copy(std::span<const std::byte> bytes);
  void send_all(Peer& peer);
  void send_until_closed(Peer& peer);
  void receive_all(Peer& peer);
  void receive_until_end(Peer& peer);
  static void enqueue(Peer& peer, std::shared_ptr<Outgoing> message);
  Buffer farewell(const Peer& peer, std::string_view why);
  void has_received(Peer& peer, uint64_t received);
  static Messages next_parcel(const Peer& peer);
  Transmission transmit(Messages messages, int to);
  void end_transmission(Peer& peer, const Transmission& transmission);
  bool hand_on(Peer& peer, uint32_t kind, const Lane& lane, Buffer bytes);
  c10::intrusive_ptr<c10d::Work> begin_fetch(Peer& peer, std::span<std::byte> into);
  bool end_fetch(Peer& peer, const c10::intrusive_ptr<c10d::Work>& work);
  void deliver(const Lane& lane, Buffer bytes);
  void lose(uint64_t context, int rank, std::string why);

  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const int rank_;
  const int size_;

  std::mutex mutex_;  // guards the rest
  BufferPool buffers_;
  std::condition_variable changed_;
  bool closing_ = false;
  uint64_t bases_ = 0;
  std::map<Lane, Inbox> inboxes_;
  std::string lost_to_all_;
  std::map<std::pair<uint64_t, int>, std::string> lost_;  // context, or kEveryGroup
  std::vector<std::unique_ptr<Peer>> peers_;              // by rank; null for this one
};

}  // namespace thinwire
