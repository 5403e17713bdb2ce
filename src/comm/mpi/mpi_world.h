// This process's MPI: started once, entered by any thread, abandoned for good after a loss.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {

// Memory that MPI still knows, of a transfer that was given up.
class MpiKept {
 public:
  virtual ~MpiKept() = default;
  virtual bool ended() = 0;  // and may be destroyed
};

// One per process, never destroyed. All members by any thread.
class MpiWorld {
 public:
  // Whom to tell something, and the number under which that process knows the group it is about.
  struct Listener {
    int rank;
    uint32_t context;
  };
  static constexpr uint32_t kEveryGroup = 0;
  static constexpr uint32_t kFirstContext = 1;

  // Starts MPI the first time, which all processes do together.
  static Result<MpiWorld*> get();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  MPI_Comm comm() const noexcept { return comm_; }

  // MPI may be called while the lock is held. Not owned once MPI was given up: then it may not. No
  // call made under it blocks, but for the making of a communicator.
  std::shared_lock<std::shared_mutex> enter();

  // Gives MPI up: when this returns no thread is inside, and none enters again. MPI moves bytes
  // only while somebody is inside, so buffers that it still knows are not touched any more.
  void close() noexcept;

  // A number for a group's messages to this process, which no other of its groups has.
  uint32_t new_context();
  // Tags on the wire, for the group that the receiver knows by this number: of the head of a
  // message, and of the sender's n-th body to this receiver. Bodies are told apart modulo 32768.
  static int head_tag(uint32_t context, int tag) noexcept {
    return static_cast<int>(2 * context * kTags + static_cast<uint32_t>(tag));
  }
  static int body_tag(uint32_t context, uint32_t n) noexcept {
    return static_cast<int>((2 * context + 1) * kTags + n % kTags);
  }

  // What is told about a group: that this rank is lost to it, or that it ended for all its ranks.
  enum class News : uint32_t { kLost, kAborted, kMeeting };

  // Tells them that this rank is lost to their groups, within 2 s, and remembers it when it is lost
  // to every group.
  void announce(std::span<const Listener> listeners, std::string_view why) noexcept {
    tell(News::kLost, listeners, why);
  }
  // Tells them, and remembers, that a group whose number each of them knows has ended, with all
  // groups split from it.
  void announce_abort(std::span<const Listener> listeners, std::string_view why) noexcept {
    tell(News::kAborted, listeners, why);
  }

  // Messages about the next group, for processes that come and go: kLetter bytes at most, which
  // take_letters gives in the order in which they came. Neither waits for those that do not listen.
  static constexpr size_t kLetter = 1000;
  void send_letter(std::span<const int> to, std::span<const std::byte> letter) noexcept;
  std::vector<std::pair<int, std::vector<std::byte>>> take_letters();

  // Processes that are known to have ended.
  bool has_ended(int rank);

  // Keeps it until it has ended, so that MPI need not be given up.
  void keep(std::unique_ptr<MpiKept> kept);

  // Listens for such announcements.
  void listen();
  // The same in some of the calls, for those that poll: a look costs as much as a poll.
  void listen_now_and_then();
  // Why a peer is lost to the group; empty when it is not. Of processes on this host that ended
  // without a word it is known half a second later; those elsewhere are missed at a deadline.
  // `family` is the number of the group that it was split from, or itself, if that can be aborted
  // alone.
  std::string lost(uint32_t context, uint32_t family, int peer);
  // A transfer was given up before it ended: its peer may be lost without anybody saying so. The
  // same holds for a group that was aborted.
  void gave_up() noexcept { gave_up_ = true; }

 private:
  static constexpr uint32_t kTags = 32768;  // as many as a group has; MPI promises no more
  static constexpr int kNoticeTag = 0;
  static constexpr int kEndTag = 1;

  struct Notice {
    News news;
    uint32_t context;  // of a letter: its size
    int32_t rank;
    // Ends with a zero, unless it is a letter; 1 KiB in all, which every transport sends without a
    // handshake.
    char why[1012];
  };
  static_assert(kLetter < sizeof(Notice::why));
  class Notices;

  MpiWorld() = default;
  Status start();
  void tell(News news, std::span<const Listener> listeners, std::string_view why) noexcept;
  void send_notices(std::unique_ptr<Notices> notices, std::chrono::milliseconds patience) noexcept;
  void post_listener();
  void note(const Notice& notice);
  void watch_processes();
  void look_for_ended();
  bool all_end();
  static void at_exit(int status, void* self);

  int rank_ = 0;
  int size_ = 1;
  MPI_Comm comm_ = MPI_COMM_NULL;     // messages of groups
  MPI_Comm notices_ = MPI_COMM_NULL;  // announcements and the end
  uint32_t contexts_ = 0;             // as many as tags leave room for
  std::atomic<uint32_t> next_context_{kFirstContext + 1};
  bool started_here_ = false;

  std::shared_mutex gate_;
  bool closed_ = false;

  std::mutex listening_;
  MPI_Request listener_ = MPI_REQUEST_NULL;
  Notice heard_{};

  // Processes of this host, one each; under listening_.
  struct Watched {
    int rank;
    int pid;
    int handle;  // readable when the process has ended
    std::chrono::steady_clock::time_point ended{};
  };
  std::vector<Watched> watched_;
  std::chrono::steady_clock::time_point looked_{};

  std::atomic<bool> gave_up_{false};
  std::atomic<bool> any_news_{false};  // of what follows
  std::atomic<bool> any_lost_{false};  // a process is gone, or lost to a group
  std::mutex losses_;                  // guards the rest
  std::string lost_to_all_;
  std::map<std::pair<uint32_t, int>, std::string> lost_;
  std::map<int, std::string> ended_;
  std::map<uint32_t, std::string> aborted_;  // by family
  std::vector<std::pair<int, std::vector<std::byte>>> letters_;

  std::mutex keeping_;
  std::vector<std::unique_ptr<MpiKept>> kept_;
};

}  // namespace thinwire
