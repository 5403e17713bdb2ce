// CountedPace: an asynchronous worker reports steps to the desk and enters rounds that it calls.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <span>
#include <string>
#include <utility>

#include "sync/desk_service.h"
#include "sync/pace.h"
#include "thinwire/survived.h"

namespace thinwire {
namespace {

// How a worker reaches the desk: by messages, or, on its rank, by hand.
class DeskLine {
 public:
  virtual ~DeskLine() = default;
  virtual void tell(DeskWord word, uint64_t round) = 0;
  virtual std::optional<DeskNote> take(bool wait) = 0;
  // That this worker failed; false where it cannot be said.
  virtual bool report(std::string_view why) = 0;
  virtual std::vector<LostWorker> lost() { return {}; }
};

class LineAtHand final : public DeskLine {
 public:
  LineAtHand(std::unique_ptr<Group> channel, RoundDesk desk, bool survives_losses)
      : service_(std::move(channel), std::move(desk), survives_losses) {}
  void tell(DeskWord word, uint64_t round) override { service_.tell(word, round); }
  std::optional<DeskNote> take(bool wait) override { return service_.take(wait); }
  bool report(std::string_view /*why*/) override { return false; }  // the desk goes with it
  std::vector<LostWorker> lost() override { return service_.lost(); }

 private:
  DeskService service_;
};

class FarLine final : public DeskLine {
 public:
  explicit FarLine(std::unique_ptr<Group> channel)
      : channel_(std::move(channel)), note_(note_size(channel_->size())) {
    listen();
  }

  // Sends wait for nobody until there are kMost of them on their way.
  void tell(DeskWord word, uint64_t round) override {
    // What comes next is the end, which waits for a silent worker for three deadlines.
    if (word == DeskWord::kLeft) channel_->set_deadline(channel_->deadline() * 4);
    while (!out_.empty() && (out_.size() >= kMost || out_.front().transfer->done())) {
      channel_->wait(out_.front().transfer);
      out_.pop_front();
    }
    Sent& sent = out_.emplace_back();
    sent.message = {static_cast<uint64_t>(word), round};
    sent.transfer = channel_->send(std::as_bytes(std::span(sent.message)), 0, kDeskTag);
  }

  std::optional<DeskNote> take(bool wait) override {
    if (wait)
      channel_->wait(in_);
    else if (!in_->done())
      return std::nullopt;
    const std::optional<DeskNote> note = read_note(note_, channel_->rank());
    if (!note) throw Error(ErrorCode::kCorrupt, "desk: a note of rank 0 is none");
    if (note->kind != DeskNote::Kind::kEnd) listen();
    return note;
  }

  bool report(std::string_view why) override {
    tell(DeskWord::kFailed, 0);
    DeskReason reason{};
    std::copy_n(why.begin(), std::min(why.size(), reason.size() - 1), reason.begin());
    const auto sent = channel_->send(std::as_bytes(std::span(reason)), 0, kReasonTag);
    for (const Sent& word : out_) channel_->wait(word.transfer);
    channel_->wait(sent);
    return true;
  }

 private:
  static constexpr size_t kMost = 64;
  struct Sent {
    DeskMessage message{};
    std::unique_ptr<Transfer> transfer;
  };

  void listen() { in_ = channel_->receive(note_, 0, kNoteTag); }

  const std::unique_ptr<Group> channel_;
  std::vector<std::byte> note_;
  std::unique_ptr<Transfer> in_;
  std::deque<Sent> out_;  // whose memory stays where it is
};

class CountedPace final : public Pace {
 public:
  CountedPace(Group& group, uint64_t period, std::chrono::milliseconds patience)
      : rank_(group.rank()),
        survives_(patience.count() > 0),
        lost_(static_cast<size_t>(group.size())) {
    std::unique_ptr<Group> channel = group.split(0);
    if (channel->rank() == 0) {
      RoundDesk desk(channel->size(), period, patience, channel->deadline() * 9 / 10);
      line_ = std::make_unique<LineAtHand>(std::move(channel), std::move(desk), survives_);
    } else {
      line_ = std::make_unique<FarLine>(std::move(channel));
    }
  }

  std::optional<RoundCall> after_step(uint64_t /*steps*/) override {
    line_->tell(DeskWord::kStepped, 0);
    while (const auto note = line_->take(false)) hear(*note);
    if (called_ == 0) return std::nullopt;
    return come();
  }

  std::vector<int> leave() override {
    line_->tell(DeskWord::kLeft, 0);
    for (;;) {
      const DeskNote note = *line_->take(true);
      hear(note);
      if (note.kind == DeskNote::Kind::kEnd) return ranks_of(note);
    }
  }

  bool fail(std::string_view why) override { return survives_ && line_->report(why); }
  std::vector<LostWorker> lost() override { return line_->lost(); }

  bool heard_lost(std::span<const int> ranks) override {
    while (const auto note = line_->take(false)) hear(*note);
    return std::any_of(ranks.begin(), ranks.end(),
                       [&](int rank) { return lost_[static_cast<size_t>(rank)]; });
  }

 private:
  static std::vector<int> ranks_of(const DeskNote& note) {
    std::vector<int> ranks;
    for (size_t r = 0; r < note.members.size(); ++r)
      if (note.members[r]) ranks.push_back(static_cast<int>(r));
    return ranks;
  }

  void hear(const DeskNote& note) {
    if (note.kind == DeskNote::Kind::kCalled) called_ = note.round;
    if (note.kind != DeskNote::Kind::kLost) return;
    for (const int rank : ranks_of(note)) {
      if (rank == rank_)
        throw SurvivedError(ErrorCode::kTimeout,
                            "desk: the other workers gave this one up: it said nothing for nine "
                            "tenths of the deadline, and they went on without it");
      lost_[static_cast<size_t>(rank)] = true;
    }
  }

  // To the latest round that was called; the desk may have closed it meanwhile.
  std::optional<RoundCall> come() {
    const uint64_t round = std::exchange(called_, 0);
    line_->tell(DeskWord::kCame, round);
    for (;;) {
      const DeskNote note = *line_->take(true);
      hear(note);
      if (note.kind == DeskNote::Kind::kCalled || note.round != round) continue;
      if (note.kind == DeskNote::Kind::kClosed) return std::nullopt;
      const std::vector<int> ranks = ranks_of(note);
      if (note.kind == DeskNote::Kind::kMembers) return RoundCall{.number = round, .ranks = ranks};
      std::string missing;
      for (const int rank : ranks)
        missing += (missing.empty() ? "rank " : ", ") + std::to_string(rank);
      throw Error(ErrorCode::kTimeout, "leader: did not come to round " + std::to_string(round) +
                                           " within the deadline: " + missing);
    }
  }

  const int rank_;
  const bool survives_;
  std::vector<bool> lost_;  // by rank, as far as this one has heard
  std::unique_ptr<DeskLine> line_;
  uint64_t called_ = 0;  // and not answered
};

}  // namespace

std::unique_ptr<Pace> make_counted_pace(Group& group, uint64_t period,
                                        std::chrono::milliseconds patience) {
  return std::make_unique<CountedPace>(group, period, patience);
}

}  // namespace thinwire
