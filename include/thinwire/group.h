// Group: moves bytes between ranks. It knows nothing of codecs, and adds floats only in
// library_all_reduce.
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

// A send or receive under way. Destroying an unfinished one abandons it: the buffer is then no
// longer touched, and the group can only be aborted.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // Whether the transfer has finished. Makes progress and never blocks. Throws Error(kPeerLost) if
  // it can never finish, and Error(kMismatch) if the message is not as long as the buffer.
  virtual bool done() = 0;

  // "receive of 128 bytes from rank 3, tag 7", for errors.
  virtual std::string describe() const = 0;
};

// A fixed set of ranks that communicate. All ranks call collectives in the same order. Only one
// thread at a time may use a group; split gives another thread a channel of its own. Every wait
// ends by the deadline with Error(kTimeout) or Error(kPeerLost), which names the peer. The group is
// then unusable.
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  // Start the transfer of a message of buffer.size() bytes. The caller must not touch the buffer
  // until done. Messages between two ranks under one tag arrive in the order of sending. Every
  // message sent must be received. REQUIRES: 0 <= tag < 30000; the collectives use the tags above.
  virtual std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) = 0;
  virtual std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) = 0;

  // Makes a group of the ranks that give the same colour, in rank order. Every rank of this group
  // calls it.
  virtual std::unique_ptr<Group> split(int colour) = 0;

  // Makes every wait fail with Error(kPeerLost), "rank 3 failed: reason", on every rank of this
  // group, of the groups split from it and of the group from which it was split. The first abort
  // counts.
  virtual void abort(std::string_view reason) noexcept = 0;

  // Adds the values of all other ranks to `values`, in the order of the library below. This is a
  // baseline, and its bits may differ from run to run. Groups make no other sums of floats.
  virtual void library_all_reduce(std::span<float> values) = 0;

  // The longest time that a single wait may take. It is 60 s until set; from 0 to a year, and what
  // is set beyond these counts as the nearer of them.
  std::chrono::milliseconds deadline() const noexcept { return deadline_; }
  void set_deadline(std::chrono::milliseconds deadline) noexcept;

  // Returns when all transfers are done; a null one counts as done. Yields the core while it waits.
  void wait(std::span<const std::unique_ptr<Transfer>> transfers);
  void wait(const std::unique_ptr<Transfer>& transfer) { wait(std::span(&transfer, 1)); }

  // The same until a point in time, for waits that have one deadline together. A wait that begins
  // now may take until give_up_at.
  using Instant = std::chrono::steady_clock::time_point;
  Instant give_up_at() const noexcept;
  void wait_until(std::span<const std::unique_ptr<Transfer>> transfers, Instant until);

  // Collectives on top of send and receive. They take ceil(log2 n) rounds unless stated otherwise.
  void barrier();
  void broadcast(std::span<std::byte> buffer, int root);
  uint64_t max(uint64_t value);
  // Gathers one message of mine.size() bytes from every rank, in rank order; each rank sends n - 1
  // messages. `mine` may be its place in `all`.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all);
  // The same for messages of any lengths up to `limit`. A longer message is Error(kMismatch).
  std::vector<std::vector<std::byte>> all_gather_v(std::span<const std::byte> mine,
                                                   size_t limit = size_t{1} << 30);

  // Bytes of the sends and receives started so far, including those of the collectives.
  uint64_t bytes_sent() const noexcept { return sent_; }
  uint64_t bytes_received() const noexcept { return received_; }

 protected:
  // A wait calls this between two looks at its transfers, the `look`th time in a row. It returns
  // when another look may help, at the latest at `until`. The default sleeps for growing times,
  // unless the backend can do better.
  virtual void idle(int look, Instant until);

  // The error text of the first wait of this rank that failed, for the ranks that this rank then
  // leaves.
  const std::string& failure() const noexcept { return failure_; }

  void count_sent(size_t size) noexcept { sent_ += size; }
  void count_received(size_t size) noexcept { received_ += size; }

 private:
  std::chrono::milliseconds deadline_{60000};
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  std::string failure_;
};

// Runs `work` on every rank. If it throws on some ranks, all throw the error of the lowest such
// rank as an AgreedError, before any of them continues. All ranks call it.
void together(Group& group, const std::function<void()>& work);

// Makes groups for ranks that are threads of this process: groups[r] belongs to rank r. Their
// shared state lives as long as the last of them. If a group is destroyed while others wait for it,
// its rank is lost to them. A message is copied once, from the sender's buffer into the receiver's.
std::vector<std::unique_ptr<Group>> make_local_groups(int size);

// Runs `body` on `size` threads, each with its rank's local group. If one throws, the waits of the
// others fail with an error that names it. When all have ended, the error of the rank that failed
// first is rethrown.
void run_local(int size, const std::function<void(Group&)>& body);

// The group of mpirun's world, as this process's rank. The first call initialises MPI, and MPI ends
// with the process. Fails with kUnsupported in builds without MPI.
Result<std::unique_ptr<Group>> make_mpi_group();

}  // namespace thinwire
