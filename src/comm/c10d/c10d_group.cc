// C10dGroup: the Group over the messages of a C10dWorld, with its transfers and splits.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>

#include "comm/c10d/c10d_world.h"
#include "comm/peer_lost.h"
#include "comm/tags.h"
#include "core/bytes.h"
#include "core/checksum.h"
#include "thinwire/c10d.h"

namespace thinwire {
namespace {

// What a group and its transfers share; one thread at a time.
struct C10dGroupState {
  std::shared_ptr<C10dWorld> world;
  uint64_t context = 0;
  int rank = 0;                  // this process's place
  std::vector<int> world_ranks;  // rank in the world of each member
  std::string cause;             // of the first failed wait, when it was the loss of another rank

  int world_rank(int r) const { return world_ranks[static_cast<size_t>(r)]; }
};

class C10dTransfer : public Transfer {
 public:
  bool done() final {
    if (done_) return true;
    done_ = advance();
    if (done_) return true;
    const std::string why = members_->world->lost(members_->context, members_->world_rank(peer_));
    if (why.empty()) return false;
    done_ = advance();  // what came before the loss counts
    if (done_) return true;
    if (members_->cause.empty()) members_->cause = why;
    throw PeerLost("c10d: " + why, describe());
  }

 protected:
  C10dTransfer(std::shared_ptr<C10dGroupState> members, size_t size, int peer, int tag)
      : members_(std::move(members)), size_(size), peer_(peer), tag_(tag) {}

  virtual bool advance() = 0;

  std::string text(const char* what) const {
    return std::string(what) + " rank " + std::to_string(members_->world_rank(peer_)) + ", tag " +
           std::to_string(tag_);
  }

  const std::shared_ptr<C10dGroupState> members_;
  const size_t size_;
  const int peer_;
  const int tag_;

 private:
  bool done_ = false;
};

class C10dSend final : public C10dTransfer {
 public:
  C10dSend(const std::shared_ptr<C10dGroupState>& members, std::span<const std::byte> buffer,
           int to, int tag)
      : C10dTransfer(members, buffer.size(), to, tag),
        number_(members->world->send(buffer, members->context, members->world_rank(to), tag)) {}

  std::string describe() const override {
    return "send of " + std::to_string(size_) + " bytes " + text("to");
  }

 private:
  bool advance() override { return members_->world->is_sent(members_->world_rank(peer_), number_); }

  const uint64_t number_;
};

class C10dReceive final : public C10dTransfer {
 public:
  C10dReceive(const std::shared_ptr<C10dGroupState>& members, std::span<std::byte> buffer, int from,
              int tag)
      : C10dTransfer(members, buffer.size(), from, tag),
        buffer_(buffer),
        lane_{members->context, members->world_rank(from), tag},
        number_(members->world->next_receive(lane_)) {}

  std::string describe() const override {
    return "receive of " + std::to_string(size_) + " bytes " + text("from");
  }

 private:
  bool advance() override {
    auto message = members_->world->take(lane_, number_);
    if (!message) return false;
    if (message->size != buffer_.size())
      throw Error(ErrorCode::kMismatch,
                  "c10d: " + describe() + ": the message has " + std::to_string(message->size));
    size_t at = 0;
    for (const auto& piece : message->pieces) {
      if (piece.bytes.empty()) continue;
      std::memcpy(buffer_.data() + at, piece.bytes.data(), piece.bytes.size());
      at += piece.bytes.size();
    }
    members_->world->give(std::move(*message));
    return true;
  }

  const std::span<std::byte> buffer_;
  const C10dWorld::Lane lane_;
  const uint64_t number_;
};

class C10dGroup final : public Group {
 public:
  explicit C10dGroup(C10dGroupState members)
      : members_(std::make_shared<C10dGroupState>(std::move(members))) {}

  // Whoever waits for a rank that an exception drove out hears of it at once.
  ~C10dGroup() override {
    if (std::uncaught_exceptions() > exceptions_) announce_loss();
  }

  int rank() const noexcept override { return members_->rank; }
  int size() const noexcept override { return static_cast<int>(members_->world_ranks.size()); }

  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override {
    check_message(to, size(), tag);
    count_sent(buffer.size());
    return std::make_unique<C10dSend>(members_, buffer, to, tag);
  }

  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override {
    check_message(from, size(), tag);
    count_received(buffer.size());
    return std::make_unique<C10dReceive>(members_, buffer, from, tag);
  }

  // The members' number follows from their group's, how often it was split, and the colour.
  std::unique_ptr<Group> split(int colour) override {
    std::vector<int32_t> all(static_cast<size_t>(size()));
    const int32_t mine = colour;
    all_gather(byte_view(mine), std::as_writable_bytes(std::span(all)));
    const uint64_t path[] = {members_->context, ++splits_,
                             static_cast<uint64_t>(static_cast<int64_t>(colour))};
    C10dGroupState part{.world = members_->world,
                        .context = checksum(std::as_bytes(std::span(path))) | uint64_t{1} << 63,
                        .rank = 0,
                        .world_ranks = {},
                        .cause = {}};
    for (int r = 0; r < size(); ++r) {
      if (all[static_cast<size_t>(r)] != colour) continue;
      if (r == rank()) part.rank = static_cast<int>(part.world_ranks.size());
      part.world_ranks.push_back(members_->world_rank(r));
    }
    auto group = std::make_unique<C10dGroup>(std::move(part));
    group->set_deadline(deadline());
    return group;
  }

  void abort(std::string_view reason) noexcept override {
    std::vector<int> all(static_cast<size_t>(members_->world->size()));
    std::iota(all.begin(), all.end(), 0);
    members_->world->announce(
        C10dWorld::kEveryGroup, all,
        "rank " + std::to_string(members_->world->rank()) + " failed: " + std::string(reason));
  }

  // Of all ranks by the process group; of some, gathered and added in rank order.
  void library_all_reduce(std::span<float> values) override {
    if (size() == 1) return;
    const auto n = static_cast<size_t>(size());
    if (size() == members_->world->size()) {
      members_->world->sum(values);
      const size_t counted = 2 * (n - 1) * values.size_bytes() / n;
      count_sent(counted);
      count_received(counted);
      return;
    }
    std::vector<float> all(values.size() * n);
    all_gather(std::as_bytes(values), std::as_writable_bytes(std::span(all)));
    for (size_t i = 0; i < values.size(); ++i) {
      float sum = 0;
      for (size_t r = 0; r < n; ++r) sum += all[r * values.size() + i];
      values[i] = sum;
    }
  }

 private:
  void idle(int look, Instant until) override {
    if (look < 4) return Group::idle(look, until);
    members_->world->await_change(
        seen_, std::min(until, std::chrono::steady_clock::now() + std::chrono::milliseconds(1)));
  }

  void announce_loss() const {
    std::string why = members_->cause;
    if (why.empty())
      why = "rank " + std::to_string(members_->world->rank()) +
            (failure().empty() ? " left the group by an exception" : " failed: " + failure());
    members_->world->announce(members_->context, members_->world_ranks, why);
  }

  const std::shared_ptr<C10dGroupState> members_;
  const int exceptions_ = std::uncaught_exceptions();
  uint64_t splits_ = 0;
  uint64_t seen_ = 0;  // of the world's changes
};

}  // namespace

std::unique_ptr<Group> make_c10d_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  C10dGroupState all{
      .world = C10dWorld::of(group), .context = 0, .rank = 0, .world_ranks = {}, .cause = {}};
  all.context = C10dWorld::kFirstContext + all.world->new_base();
  all.rank = all.world->rank();
  all.world_ranks.resize(static_cast<size_t>(all.world->size()));
  std::iota(all.world_ranks.begin(), all.world_ranks.end(), 0);
  return std::make_unique<C10dGroup>(std::move(all));
}

void close_c10d_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group) noexcept {
  C10dWorld::close_one(group);
}

void close_c10d_groups() noexcept { C10dWorld::close_all(); }

}  // namespace thinwire
