// C10dWorld: the messages of thinwire's groups over one process group of torch.distributed.
//
// Point-to-point only, under one tag. Each pair of ranks has a stream of messages in either
// direction, cut into parcels (parcel.h), and each direction a thread, since a backend such as Gloo
// can wait for a message but not be asked whether it is there. A transfer of Gloo begins when the
// receiver has said that it is ready, which costs a handshake of 0.15 ms on busy cores and waits
// behind all that goes the same way. So kPosted receives are always posted, each of them for the
// largest parcel, a smaller one coming as it is: nothing waits for a handshake as long as less is
// under way, and a link carries both ways. Who leaves, or is lost to a group, says how many
// messages it got: a sender may learn that its rank has left before it learns that what it sent has
// arrived.
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
#include <vector>

#include "comm/c10d/parcel.h"
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

  // A message that arrived, in as many pieces as parcels brought it.
  struct Piece {
    std::shared_ptr<Buffer> memory;
    std::span<const std::byte> bytes;
  };
  struct Message {
    size_t size = 0;
    std::vector<Piece> pieces;
  };

  // The world of this process group, with its threads. Throws Error(kUnsupported) for a backend
  // that moves tensors of the processor's memory neither itself nor through another one.
  static std::shared_ptr<C10dWorld> of(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

  // Ends the world of a process group, if there is one.
  static void close_one(const c10::intrusive_ptr<c10d::ProcessGroup>& group) noexcept;

  // Ends all worlds of this process: called before the interpreter goes.
  static void close_all() noexcept;

  ~C10dWorld() = default;  // after close
  C10dWorld(const C10dWorld&) = delete;
  C10dWorld& operator=(const C10dWorld&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  // The bytes are copied. Returns the message's number among those to the same rank.
  uint64_t send(std::span<const std::byte> bytes, uint64_t context, int to, int tag);
  bool is_sent(int to, uint64_t number);

  // The number of the next receive of a lane: it gets the message of that number.
  uint64_t next_receive(const Lane& lane);
  // Message `number` of the lane, once, when it is there; its memory is to be given back.
  std::optional<Message> take(const Lane& lane, uint64_t number);
  void give(Message message);

  // Tells those ranks that this one is lost to the group `context`, or to all groups.
  void announce(uint64_t context, std::span<const int> ranks, std::string_view why) noexcept;
  // Why a rank is lost to a group; empty when it is not.
  std::string lost(uint64_t context, int rank);

  // The first context of a process group's groups, then others, as all its ranks call it alike.
  uint64_t new_base();

  // Returns when something arrived or was sent since `seen`, at `until` at the latest; brings
  // `seen`, 0 at first, up to date.
  void await_change(uint64_t& seen, std::chrono::steady_clock::time_point until);

  void sum(std::span<float> values);  // the process group's own all-reduce

 private:
  struct Peer;
  struct Inbox {
    uint64_t receives = 0;  // begun
    uint64_t first = 0;     // number of the message at the front
    std::deque<std::optional<Message>> messages;
  };

  struct Outgoing;
  struct Incoming;

  explicit C10dWorld(c10::intrusive_ptr<c10d::ProcessGroup> group);
  static void end(const std::map<c10d::ProcessGroup*, std::shared_ptr<C10dWorld>>& worlds) noexcept;
  void leave() noexcept;
  bool close() noexcept;
  bool stop_receiving(Peer& peer) noexcept;
  uint64_t write(Peer& peer, MessageFields fields, std::span<const std::byte> bytes);
  uint64_t say_farewell(Peer& peer, uint32_t kind, uint64_t context, std::string_view why);
  void send_all(Peer& peer);
  void send_until_closed(Peer& peer);
  void receive_all(Peer& peer);
  bool post_receive(Peer& peer);
  void receive_parcels(Peer& peer);
  bool take_part(Peer& peer, const ParcelReader::Part& part, const std::shared_ptr<Buffer>& parcel);
  bool end_message(Peer& peer, const MessageFields& fields, Message message);
  void deliver(const Lane& lane, Message message);

  enum class HowLost : uint8_t {
    kLeft,       // it said that it leaves; `why` is what it lost before, if anything
    kAnnounced,  // it, or this rank, announced that it failed; `why` is a sentence about it
    kNoticed,    // its connection failed; `why` is the error
  };
  void lose(uint64_t context, int rank, HowLost how, std::string why);

  std::string first_loss();
  void notify();

  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const int rank_;
  const int size_;

  std::mutex mutex_;  // guards the rest
  BufferPool buffers_;
  std::condition_variable changed_;
  uint64_t changes_ = 1;
  bool closing_ = false;  // nothing more is sent
  bool receiving_ = true;
  uint64_t bases_ = 0;
  std::map<Lane, Inbox> inboxes_;
  std::string lost_to_all_;
  std::string first_loss_;  // of a rank that did not say that it leaves
  std::map<std::pair<uint64_t, int>, std::string> lost_;  // context, or kEveryGroup
  std::vector<std::unique_ptr<Peer>> peers_;              // by rank; null for this one
};

}  // namespace thinwire
