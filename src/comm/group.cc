// Group: waiting with a deadline, and the collectives that are built on send and receive.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/group.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "comm/tags.h"
#include "comm/wait_policy.h"
#include "core/bytes.h"
#include "core/check.h"

namespace thinwire {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// "receive of 8 bytes from rank 3, tag 7, and 2 more", of those that are not done.
std::string unfinished(std::span<const std::unique_ptr<Transfer>> transfers) {
  std::string first;
  size_t more = 0;
  for (const auto& transfer : transfers) {
    if (!transfer || transfer->done()) continue;
    if (first.empty())
      first = transfer->describe();
    else
      ++more;
  }
  return more == 0 ? first : first + ", and " + std::to_string(more) + " more";
}

}  // namespace

void Group::idle(int look, Instant until) {
  const auto left = until - steady_clock::now();
  const auto nap = std::min<steady_clock::duration>(nap_after(look), left);
  if (nap.count() > 0) std::this_thread::sleep_for(nap);
}

Group::Instant Group::give_up_at() const noexcept { return steady_clock::now() + deadline_; }

// Others multiply it, and add it to points in time.
void Group::set_deadline(milliseconds deadline) noexcept {
  constexpr milliseconds kYear = std::chrono::hours(24 * 365);
  deadline_ = std::clamp(deadline, milliseconds(0), kYear);
}

void Group::wait(std::span<const std::unique_ptr<Transfer>> transfers) {
  wait_until(transfers, give_up_at());
}

void Group::wait_until(std::span<const std::unique_ptr<Transfer>> transfers, Instant until) {
  try {
    // All are looked at each time, so that the loss of a later one is not found by the deadline of
    // an earlier; those at the front that are done are not looked at again.
    for (int look = 0;; ++look) {
      while (!transfers.empty() && (!transfers[0] || transfers[0]->done())) {
        transfers = transfers.subspan(1);
        look = 0;
      }
      if (transfers.empty()) return;
      const bool late = steady_clock::now() >= until;
      for (const auto& transfer : transfers.subspan(1))
        if (transfer) transfer->done();
      if (late) {
        const std::string what = unfinished(transfers);
        if (what.empty()) return;
        throw Error(ErrorCode::kTimeout, "group: no end within the deadline of " +
                                             std::to_string(deadline_.count()) + " ms: " + what);
      }
      idle(look, until);
    }
  } catch (const Error& error) {
    if (failure_.empty()) failure_ = error.what();
    throw;
  }
}

void Group::barrier() { max(0); }

// In round k every rank tells the one 2^k further what it knows of the 2^k ranks up to itself
// [Hensgen, Finkel, Manber, 1988]. A rank may be counted twice, which a maximum does not mind.
uint64_t Group::max(uint64_t value) {
  const Instant until = give_up_at();
  const int n = size();
  for (int distance = 1; distance < n; distance *= 2) {
    uint64_t other = 0;
    const std::unique_ptr<Transfer> both[] = {
        receive(writable_byte_view(other), (rank() + n - distance) % n, kMaximumTag),
        send(byte_view(value), (rank() + distance) % n, kMaximumTag)};
    wait_until(both, until);
    value = std::max(value, other);
  }
  return value;
}

// Binomial tree: counted from the root, rank r receives from r without its lowest set bit, and
// passes on to r + every smaller power of two.
void Group::broadcast(std::span<std::byte> buffer, int root) {
  THINWIRE_CHECK(0 <= root && root < size(), "broadcast: no rank " + std::to_string(root));
  const Instant until = give_up_at();
  const int n = size();
  const int mine = (rank() - root + n) % n;
  int bit = 1;
  while (bit < n && (mine & bit) == 0) bit *= 2;
  if (mine != 0) {
    const auto transfer = receive(buffer, (mine - bit + root) % n, kBroadcastTag);
    wait_until(std::span(&transfer, 1), until);
  }
  std::vector<std::unique_ptr<Transfer>> sends;
  for (bit /= 2; bit > 0; bit /= 2)  // the largest subtree first: it has the longest way to go
    if (mine + bit < n) sends.push_back(send(buffer, (mine + bit + root) % n, kBroadcastTag));
  wait_until(sends, until);
}

void Group::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const int n = size();
  THINWIRE_CHECK(all.size() == mine.size() * static_cast<size_t>(n),
                 "all_gather: room for " + std::to_string(all.size()) + " bytes, " +
                     std::to_string(n) + " ranks have " + std::to_string(mine.size()) + " each");
  const Instant until = give_up_at();
  const auto of = [&](int r) {
    return all.subspan(static_cast<size_t>(r) * mine.size(), mine.size());
  };
  const auto slot = of(rank());
  if (!mine.empty() && slot.data() != mine.data())  // else in place, and others may read it already
    std::memcpy(slot.data(), mine.data(), mine.size());
  std::vector<std::unique_ptr<Transfer>> transfers;
  // Neighbours first, so that not all ranks send to rank 0 at once.
  for (int i = 1; i < n; ++i) {
    const int from = (rank() + n - i) % n;
    transfers.push_back(receive(of(from), from, kGatherTag));
  }
  for (int i = 1; i < n; ++i) transfers.push_back(send(mine, (rank() + i) % n, kGatherTag));
  wait_until(transfers, until);
}

// Lengths first, so that every rank refuses the same message before any long one has left.
std::vector<std::vector<std::byte>> Group::all_gather_v(std::span<const std::byte> mine,
                                                        size_t limit) {
  const int n = size();
  const uint64_t my_length = mine.size();
  std::vector<uint64_t> lengths(static_cast<size_t>(n));
  all_gather(byte_view(my_length), std::as_writable_bytes(std::span(lengths)));
  for (int r = 0; r < n; ++r) {
    const uint64_t length = lengths[static_cast<size_t>(r)];
    if (length > limit)
      throw Error(ErrorCode::kMismatch, "all_gather_v: rank " + std::to_string(r) + " has " +
                                            std::to_string(length) + " bytes, the limit is " +
                                            std::to_string(limit));
  }
  const Instant until = give_up_at();
  std::vector<std::vector<std::byte>> all(static_cast<size_t>(n));
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (int i = 1; i < n; ++i) {
    const int from = (rank() + n - i) % n;
    auto& theirs = all[static_cast<size_t>(from)];
    theirs.resize(lengths[static_cast<size_t>(from)]);
    if (!theirs.empty()) transfers.push_back(receive(theirs, from, kGatherVTag));
  }
  if (!mine.empty())
    for (int i = 1; i < n; ++i) transfers.push_back(send(mine, (rank() + i) % n, kGatherVTag));
  all[static_cast<size_t>(rank())].assign(mine.begin(), mine.end());
  wait_until(transfers, until);
  return all;
}

}  // namespace thinwire
