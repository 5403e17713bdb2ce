// LocalRoom: where sends and receives of one local group are matched, under one lock.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace thinwire {

class LocalRoom;

// What a group and all groups split from it share. `mutex` guards everything in all their rooms;
// only the copying of a message happens outside it.
struct LocalHub {
  std::mutex mutex;
  std::string aborted;            // by the first abort: "rank 3 failed: reason"; empty before
  int first_lost = -1;            // the first rank that aborted, or left by an exception
  std::vector<LocalRoom*> rooms;  // all that exist
};

// One side of a message. Owned by a Transfer, which takes it back before it ends.
struct LocalPost {
  enum class State : uint8_t { kPosted, kCopying, kDone, kWrongSize };

  bool is_send = false;
  int rank = 0;  // whose it is
  int peer = 0;
  int tag = 0;
  std::byte* data = nullptr;  // only read when is_send
  size_t size = 0;
  State state = State::kPosted;
  size_t size_sent = 0;  // when kWrongSize
};

// All members by any thread.
class LocalRoom {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  // world_ranks[r] is the rank r's number in the group that everything was split from: errors use
  // it.
  LocalRoom(std::shared_ptr<LocalHub> hub, std::vector<int> world_ranks);
  ~LocalRoom();
  LocalRoom(const LocalRoom&) = delete;
  LocalRoom& operator=(const LocalRoom&) = delete;

  int size() const noexcept { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int rank) const noexcept { return world_ranks_[static_cast<size_t>(rank)]; }

  // Offers one side. When the other is there already, the bytes are copied before this returns.
  void post(LocalPost& post);
  // Takes it back; after that nobody touches the post or its buffer.
  void withdraw(LocalPost& post) noexcept;
  // Throws when the post can never be done.
  bool done(const LocalPost& post);
  std::string describe(const LocalPost& post) const;

  // Sleeps until something happened to a post of `rank`, or to the group, that is not in `seen`.
  void sleep(int rank, uint64_t& seen, Instant until);

  void abort(int rank, std::string_view reason);
  // The rank's group is destroyed, because of `failure` if not empty; `by_exception`: while
  // unwinding.
  void leave(int rank, const std::string& failure, bool by_exception) noexcept;

  // The room of those who give the same colour and the same count of splits. REQUIRES:
  // `world_ranks` is the same for all of them, and each calls once.
  std::shared_ptr<LocalRoom> sub_room(uint64_t split, int colour,
                                      const std::vector<int>& world_ranks);

 private:
  struct Member {
    std::condition_variable changed;
    uint64_t events = 0;
    bool left = false;
    std::string why;  // what those who miss it are told
  };
  struct Lane {  // from one rank to another under one tag; of one kind, unless aborted
    std::deque<LocalPost*> sends, receives;
  };
  struct SubRoom {
    std::shared_ptr<LocalRoom> room;
    size_t taken = 0;
  };
  using LaneKey = std::pair<std::pair<int, int>, int>;

  static LaneKey lane_of(const LocalPost& post) {
    return {post.is_send ? std::pair(post.rank, post.peer) : std::pair(post.peer, post.rank),
            post.tag};
  }
  Member& member(int rank) { return members_[static_cast<size_t>(rank)]; }
  void wake(int rank);
  void wake_all();

  const std::shared_ptr<LocalHub> hub_;
  const std::vector<int> world_ranks_;
  std::vector<Member> members_;
  std::map<LaneKey, Lane> lanes_;
  std::map<std::pair<uint64_t, int>, SubRoom> sub_rooms_;
};

}  // namespace thinwire
