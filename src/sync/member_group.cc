// MemberGroup: translates ranks and tags, and passes everything else to the group below.
// SPDX-License-Identifier: Apache-2.0
#include "sync/member_group.h"

#include <algorithm>
#include <cstring>

#include "comm/peer_lost.h"
#include "comm/tags.h"
#include "core/check.h"

namespace thinwire {
namespace {

constexpr int kFirstOwn = 100;      // tags below are the caller's
constexpr uint64_t kRounds = 1000;  // that messages can be told apart for

}  // namespace

void Salvage::keep(Kept kept) { kept_.push_back(std::move(kept)); }

void Salvage::sweep(uint64_t round) {
  const auto goes = [&](const Kept& kept) {
    // One from a lost worker may be half there, and takes no other's message.
    if (!kept.is_send && round + 1 >= kept.round + kRounds && !heard(std::span(&kept.peer, 1)))
      return true;
    try {
      return kept.transfer->done();
    } catch (const Error&) {  // it never will; its memory may yet be read
      return false;
    }
  };
  // A receive that has not ended may be written to until its transfer is gone, so that goes before
  // its memory.
  for (Kept& kept : kept_)
    if (goes(kept)) kept.transfer.reset();
  std::erase_if(kept_, [](const Kept& kept) { return kept.transfer == nullptr; });
}

// A message of a round with its number in front, in memory that outlives whoever gives up waiting.
class MemberGroup::Salvaged final : public Transfer {
 public:
  // `out` is where a receive goes, and empty for a send of `in`.
  Salvaged(MemberGroup& group, bool is_send, std::span<const std::byte> in,
           std::span<std::byte> out, int peer, int tag)
      : group_(group),
        is_send_(is_send),
        out_(out),
        peer_(group.members_[static_cast<size_t>(peer)]),
        tag_(group.tag_of(tag)),
        bytes_(sizeof(uint64_t) + (is_send ? in.size() : out.size())) {
    if (is_send) {
      std::memcpy(bytes_.data(), &group_.round_, sizeof group_.round_);
      if (!in.empty()) std::memcpy(bytes_.data() + sizeof group_.round_, in.data(), in.size());
    }
    start();
  }
  // A receive that is small has all of its message or nothing, and nothing can be taken back.
  ~Salvaged() override {
    constexpr size_t kWhole = 64;
    if (!done_ && (is_send_ || bytes_.size() > kWhole))
      group_.salvage_->keep({.bytes = std::move(bytes_),
                             .transfer = std::move(inner_),
                             .peer = peer_,
                             .is_send = is_send_,
                             .round = group_.round_});
  }

  bool done() override {
    if (done_) return true;
    while (inner_->done()) {
      if (is_send_) return done_ = true;
      uint64_t round = 0;
      std::memcpy(&round, bytes_.data(), sizeof round);
      if (round == group_.round_) {
        if (!out_.empty()) std::memcpy(out_.data(), bytes_.data() + sizeof round, out_.size());
        return done_ = true;
      }
      start();  // that was of an abandoned round with the same tags
    }
    if (group_.salvage_->heard(group_.members_))
      throw PeerLost("a worker of round " + std::to_string(group_.round_) + " is lost", describe());
    return false;
  }

  std::string describe() const override { return inner_->describe(); }

 private:
  void start() {
    if (is_send_)
      inner_ = group_.whole_.send(bytes_, peer_, tag_);
    else
      inner_ = group_.whole_.receive(bytes_, peer_, tag_);
  }

  MemberGroup& group_;
  const bool is_send_;
  const std::span<std::byte> out_;
  const int peer_;
  const int tag_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<Transfer> inner_;
  bool done_ = false;
};

MemberGroup::MemberGroup(Group& whole, std::vector<int> members, uint64_t round, Salvage* salvage)
    : whole_(whole), members_(std::move(members)), round_(round), salvage_(salvage) {
  const auto mine = std::find(members_.begin(), members_.end(), whole.rank());
  THINWIRE_CHECK(mine != members_.end() && std::is_sorted(members_.begin(), members_.end()),
                 "member group: ranks that do not ascend, or not this one");
  THINWIRE_CHECK(members_.front() >= 0 && members_.back() < whole.size(),
                 "member group: no rank " + std::to_string(members_.back()));
  rank_ = static_cast<int>(mine - members_.begin());
  set_deadline(whole.deadline());
}

int MemberGroup::tag_of(int tag) const {
  THINWIRE_CHECK(kMaximumTag <= tag && tag < kMaximumTag + kCollectiveTags,
                 "member group: for collectives only");
  const uint64_t place = round_ == 0 ? kRounds : round_ % kRounds;
  return kFirstOwn + static_cast<int>(place) * kCollectiveTags + tag - kMaximumTag;
}

std::unique_ptr<Transfer> MemberGroup::send(std::span<const std::byte> buffer, int to, int tag) {
  count_sent(buffer.size() + (salvage_ != nullptr ? sizeof round_ : 0));
  if (salvage_ != nullptr)
    return std::make_unique<Salvaged>(*this, true, buffer, std::span<std::byte>(), to, tag);
  return whole_.send(buffer, members_[static_cast<size_t>(to)], tag_of(tag));
}

std::unique_ptr<Transfer> MemberGroup::receive(std::span<std::byte> buffer, int from, int tag) {
  count_received(buffer.size() + (salvage_ != nullptr ? sizeof round_ : 0));
  if (salvage_ != nullptr)
    return std::make_unique<Salvaged>(*this, false, std::span<const std::byte>(), buffer, from,
                                      tag);
  return whole_.receive(buffer, members_[static_cast<size_t>(from)], tag_of(tag));
}

std::unique_ptr<Group> MemberGroup::split(int /*colour*/) {
  throw Error(ErrorCode::kUnsupported, "member group: cannot be split");
}

void MemberGroup::library_all_reduce(std::span<float> /*values*/) {
  throw Error(ErrorCode::kUnsupported, "member group: no library's sum");
}

}  // namespace thinwire
