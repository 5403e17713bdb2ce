// Groups whose ranks are threads of this process. They are always built, and tests run on them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>

#include "comm/local/local_room.h"
#include "comm/tags.h"
#include "core/bytes.h"
#include "core/check.h"
#include "thinwire/group.h"
#include "thinwire/survived.h"

namespace thinwire {
namespace {

class LocalTransfer final : public Transfer {
 public:
  LocalTransfer(std::shared_ptr<LocalRoom> room, const LocalPost& post)
      : room_(std::move(room)), post_(post) {
    room_->post(post_);
  }
  ~LocalTransfer() override { room_->withdraw(post_); }

  bool done() override { return room_->done(post_); }
  std::string describe() const override { return room_->describe(post_); }

 private:
  const std::shared_ptr<LocalRoom> room_;
  LocalPost post_;
};

class LocalGroup final : public Group {
 public:
  LocalGroup(std::shared_ptr<LocalRoom> room, int rank) : room_(std::move(room)), rank_(rank) {}
  ~LocalGroup() override {
    room_->leave(rank_, failure(), std::uncaught_exceptions() > exceptions_);
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return room_->size(); }

  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override {
    check_message(to, size(), tag);
    count_sent(buffer.size());
    // A post of a send is only read through.
    return start(true, const_cast<std::byte*>(buffer.data()), buffer.size(), to, tag);
  }

  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override {
    check_message(from, size(), tag);
    count_received(buffer.size());
    return start(false, buffer.data(), buffer.size(), from, tag);
  }

  std::unique_ptr<Group> split(int colour) override {
    std::vector<int> colours(static_cast<size_t>(size()));
    all_gather(byte_view(colour), std::as_writable_bytes(std::span(colours)));
    std::vector<int> world_ranks;
    int rank = 0;
    for (int r = 0; r < size(); ++r) {
      if (colours[static_cast<size_t>(r)] != colour) continue;
      if (r == rank_) rank = static_cast<int>(world_ranks.size());
      world_ranks.push_back(room_->world_rank(r));
    }
    auto group =
        std::make_unique<LocalGroup>(room_->sub_room(splits_++, colour, world_ranks), rank);
    group->set_deadline(deadline());
    return group;
  }

  void abort(std::string_view reason) noexcept override {
    try {
      room_->abort(rank_, reason);
    } catch (...) {
      room_->leave(rank_, "out of memory", true);
    }
  }

  void library_all_reduce(std::span<float> values) override;

 private:
  std::unique_ptr<Transfer> start(bool is_send, std::byte* data, size_t size, int peer, int tag) {
    return std::make_unique<LocalTransfer>(room_, LocalPost{.is_send = is_send,
                                                            .rank = rank_,
                                                            .peer = peer,
                                                            .tag = tag,
                                                            .data = data,
                                                            .size = size});
  }

  void idle(int /*look*/, Instant until) override { room_->sleep(rank_, seen_, until); }

  const std::shared_ptr<LocalRoom> room_;
  const int rank_;
  const int exceptions_ = std::uncaught_exceptions();
  uint64_t seen_ = 0;  // events that a wait has acted on
  uint64_t splits_ = 0;
};

// Rank r adds the r-th of n pieces of all ranks, in rank order, and hands the sum out: each rank
// sends 2 (n-1)/n of the bytes.
void LocalGroup::library_all_reduce(std::span<float> values) {
  const auto n = static_cast<size_t>(size());
  const auto me = static_cast<size_t>(rank_);
  const auto piece = [&](size_t r) {
    const size_t begin = values.size() * r / n;
    return values.subspan(begin, values.size() * (r + 1) / n - begin);
  };
  const auto mine = piece(me);
  std::vector<float> theirs(mine.size() * n);
  const auto part = [&](size_t r) {
    return std::span(theirs).subspan(mine.size() * r, mine.size());
  };
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (size_t r = 0; r < n; ++r) {
    if (r == me) continue;
    const int peer = static_cast<int>(r);
    transfers.push_back(receive(std::as_writable_bytes(part(r)), peer, kReduceTag));
    transfers.push_back(send(std::as_bytes(piece(r)), peer, kReduceTag));
  }
  std::copy(mine.begin(), mine.end(), part(me).begin());
  const Instant until = give_up_at();
  wait_until(transfers, until);

  transfers.clear();
  std::fill(mine.begin(), mine.end(), 0.0f);
  for (size_t r = 0; r < n; ++r)
    for (size_t i = 0; i < mine.size(); ++i) mine[i] += part(r)[i];
  for (size_t r = 0; r < n; ++r) {
    if (r == me) continue;
    const int peer = static_cast<int>(r);
    transfers.push_back(receive(std::as_writable_bytes(piece(r)), peer, kReduceTag));
    transfers.push_back(send(std::as_bytes(mine), peer, kReduceTag));
  }
  wait_until(transfers, until);
}

std::vector<std::unique_ptr<Group>> make_groups(const std::shared_ptr<LocalHub>& hub, int size) {
  THINWIRE_CHECK(size >= 1, "local group: " + std::to_string(size) + " ranks");
  std::vector<int> world_ranks(static_cast<size_t>(size));
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  const auto room = std::make_shared<LocalRoom>(hub, world_ranks);
  std::vector<std::unique_ptr<Group>> groups;
  for (const int r : world_ranks) groups.push_back(std::make_unique<LocalGroup>(room, r));
  return groups;
}

}  // namespace

std::vector<std::unique_ptr<Group>> make_local_groups(int size) {
  return make_groups(std::make_shared<LocalHub>(), size);
}

void run_local(int size, const std::function<void(Group&)>& body) {
  const auto hub = std::make_shared<LocalHub>();
  auto groups = make_groups(hub, size);
  std::mutex mutex;
  std::exception_ptr first;  // in time; of a rank that was lost, it may be the echo
  std::vector<std::exception_ptr> errors(groups.size());

  const auto fail = [&](size_t rank, Group& group, std::string_view reason) {
    {
      const std::lock_guard lock(mutex);
      errors[rank] = std::current_exception();
      if (!first) first = errors[rank];
    }
    group.abort(reason);
  };
  const auto run = [&](size_t rank) {
    const auto group =
        std::move(groups[rank]);  // ends with the thread: who returns early is missed
    try {
      body(*group);
    } catch (const SurvivedError&) {  // the others know
    } catch (const std::exception& error) {
      fail(rank, *group, error.what());
    } catch (...) {
      fail(rank, *group, "an exception of no known type");
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < errors.size(); ++rank) threads.emplace_back(run, rank);
  }
  // While a rank unwinds, its sub-groups leave before its body has ended: others may have failed
  // for want of them, and ended, before the error that started it all was seen here.
  const int lost = hub->first_lost;
  if (lost >= 0 && errors[static_cast<size_t>(lost)])
    std::rethrow_exception(errors[static_cast<size_t>(lost)]);
  if (first) std::rethrow_exception(first);
}

}  // namespace thinwire
