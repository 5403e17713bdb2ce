// A Group moves bytes between ranks. It knows nothing of codecs, and adds no floats but on request.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {

// A send or receive under way. Destroying an unfinished one gives it up; the buffer is then no
// longer touched, and the group is only good for abort.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // Whether it has finished; makes progress, never blocks. Throws Error(kPeerLost) when it never
  // will and Error(kMismatch) when the message is not as long as the buffer.
  virtual bool done() = 0;

  // "receive of 128 bytes from rank 3, tag 7", for errors.
  virtual std::string describe() const = 0;
};

// A fixed set of ranks that talk. Collectives are called by all of them in the same order. One
// thread at a time uses a group; split gives another thread a channel of its own. Every wait ends
// by the deadline with Error(kTimeout) or Error(kPeerLost) that names the peer; the group is then
// unusable.
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  // Starts a message of buffer.size() bytes. The buffer stays untouched by the caller until done.
  // Messages between two ranks under one tag arrive in the order of sending. Every message sent
  // must be received. REQUIRES: 0 <= tag < 30000; the collectives use those above.
  virtual std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) = 0;
  virtual std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) = 0;

  // A group of the ranks that gave the same colour, in rank order; every rank of this group calls
  // it.
  virtual std::unique_ptr<Group> split(int colour) = 0;

  // Makes every wait of every rank of this group, of the groups split from it and of the one it was
  // split from, fail with Error(kPeerLost): "rank 3 failed: reason". The first abort counts.
  virtual void abort(std::string_view reason) noexcept = 0;

  // values += those of all other ranks, in the library's own order: a baseline, its bits may differ
  // from run to run. The other sums of thinwire are not made by groups.
  virtual void library_all_reduce(std::span<float> values) = 0;

  // The longest a wait may take. 60 s until set.
  std::chrono::milliseconds deadline() const noexcept { return deadline_; }
  void set_deadline(std::chrono::milliseconds deadline) noexcept { deadline_ = deadline; }

  // Returns when all are done; a null one is. Gives the core away while it waits.
  void wait(std::span<const std::unique_ptr<Transfer>> transfers);
  void wait(const std::unique_ptr<Transfer>& transfer) { wait(std::span(&transfer, 1)); }

  // Collectives on top of send and receive; ceil(log2 n) rounds unless said.
  void barrier();
  void broadcast(std::span<std::byte> buffer, int root);
  uint64_t max(uint64_t value);
  // One message of mine.size() bytes from every rank, in rank order; n - 1 messages sent by each.
  // `mine` may be its place in `all`.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all);
  // The same for messages of any lengths up to `limit`; a longer one is Error(kMismatch).
  std::vector<std::vector<std::byte>> all_gather_v(std::span<const std::byte> mine,
                                                   size_t limit = size_t{1} << 30);

  // Bytes of the sends and receives started so far, those of the collectives included.
  uint64_t bytes_sent() const noexcept { return sent_; }
  uint64_t bytes_received() const noexcept { return received_; }

 protected:
  using Instant = std::chrono::steady_clock::time_point;

  // Called by a wait between two looks at its transfers, the `look`th time in a row: returns when
  // another look may help, `until` at the latest. Naps that grow, unless the backend knows better.
  virtual void idle(int look, Instant until);

  // What the first wait of this rank that failed had to say: for those whom that rank then leaves.
  const std::string& failure() const noexcept { return failure_; }

  // Now plus the deadline.
  Instant give_up_at() const noexcept;
  void wait_until(std::span<const std::unique_ptr<Transfer>> transfers, Instant until);

  void count_sent(size_t size) noexcept { sent_ += size; }
  void count_received(size_t size) noexcept { received_ += size; }

 private:
  std::chrono::milliseconds deadline_{60000};
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  std::string failure_;
};

// Runs `work` on every rank; when it throws on some, throws the lowest such rank's error on all as an
// AgreedError, before any of them goes on. Called by all ranks.
void together(Group& group, const std::function<void()>& work);

// Ranks that are threads of this process: groups[r] belongs to rank r. Their shared state lives as
// long as the last of them. A group that is destroyed while others wait for it is lost to them.
// A message is copied once, from the sender's buffer into the receiver's.
std::vector<std::unique_ptr<Group>> make_local_groups(int size);

// Runs `body` on `size` threads, each with its rank's local group. When one throws, the others'
// waits fail naming it; the error of the rank that failed first is rethrown once all have ended.
void run_local(int size, const std::function<void(Group&)>& body);

// This process's rank of mpirun's world. Initialises MPI the first time; MPI ends with the process.
// Fails with kUnsupported when built without MPI.
Result<std::unique_ptr<Group>> make_mpi_group();

}  // namespace thinwire
