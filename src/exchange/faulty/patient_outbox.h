// PatientOutbox: messages to ranks that may take them late, or never.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "comm/wait_policy.h"
#include "core/buffer_pool.h"
#include "exchange/faulty/roster.h"
#include "thinwire/group.h"

namespace thinwire {

// Repeats `body` with naps, until it gives true or the time is over.
template <typename Body>
void poll_until(std::chrono::steady_clock::time_point end, const Body& body) {
  for (int look = 0; !body() && std::chrono::steady_clock::now() < end; ++look)
    if (const auto nap = nap_after(look); nap.count() > 0) std::this_thread::sleep_for(nap);
}

// Keeps each message until all its receivers have taken it. One that was given up is not destroyed
// before the outbox is, because a group can only be aborted after that. One thread at a time.
class PatientOutbox {
 public:
  // A rank that has not taken the messages of so many steps is lost.
  static constexpr size_t kMostSteps = 8;

  // For `in_step` messages to each rank in a step.
  PatientOutbox(Group& group, Roster& roster, size_t in_step = 1)
      : group_(group), roster_(roster), most_(in_step * kMostSteps) {}

  // Waits for ranks that are about to take their messages, a deadline at most; for those that did
  // not, no other outbox of the step waits.
  ~PatientOutbox();

  // Sends the first `size` bytes of the message to all ranks that are not lost. send_sized sends
  // the length under `tag` and the bytes under `tag + 1`, as SizedSend does; send sends the bytes
  // under `tag`.
  void send_sized(Buffer message, size_t size, int tag) {
    send(std::move(message), size, tag, true);
  }
  void send(Buffer message, size_t size, int tag) { send(std::move(message), size, tag, false); }

  // Gives the memory of messages back that everybody has.
  void tidy(BufferPool& buffers);

  // Whether a step is under way: if the outbox ends in the middle of one, nobody is waited for.
  void set_under_way(bool under_way) noexcept { under_way_ = under_way; }

 private:
  struct Sent {
    size_t rank;
    std::unique_ptr<Transfer> number, bytes;  // null: has left
    bool given_up = false;
  };
  struct Letter {
    uint64_t size = 0;
    Buffer message;
    std::vector<Sent> sent;
  };

  void send(Buffer message, size_t size, int tag, bool sized);
  bool look(Sent& sent);
  bool delivered() const noexcept;
  size_t behind(size_t rank) const noexcept;

  Group& group_;
  Roster& roster_;
  const size_t most_;  // that a rank may leave behind
  bool under_way_ = false;
  std::list<Letter> letters_;  // what a transfer reads stays where it is
};

}  // namespace thinwire
