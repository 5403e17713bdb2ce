// A worker's way to the desk: words there, notes back.
// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <string>
#include <utility>

#include "sync/desk_service.h"
#include "sync/pace.h"

namespace thinwire {
namespace {

// How a worker reaches the desk: by messages, or, on its rank, by hand.
class DeskLine {
 public:
  virtual ~DeskLine() = default;
  virtual void tell(DeskWord word, uint64_t round) = 0;
  virtual std::optional<DeskNote> take(bool wait) = 0;
  virtual void hang_up() = 0;
};

class LineAtHand final : public DeskLine {
 public:
  LineAtHand(std::unique_ptr<Group> channel, RoundDesk desk, bool survives_losses)
      : service_(std::move(channel), std::move(desk), survives_losses) {}
  void tell(DeskWord word, uint64_t round) override { service_.tell(word, round); }
  std::optional<DeskNote> take(bool wait) override { return service_.take(wait); }
  void hang_up() override { service_.drain(); }

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
    listen();
    return note;
  }

  void hang_up() override {
    for (const Sent& sent : out_) channel_->wait(sent.transfer);
    out_.clear();
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
  CountedPace(Group& group, uint64_t period, std::chrono::milliseconds patience) {
    std::unique_ptr<Group> channel = group.split(0);
    const bool survives = patience.count() > 0;
    if (channel->rank() == 0) {
      RoundDesk desk(channel->size(), period, patience, channel->deadline() * 9 / 10);
      line_ = std::make_unique<LineAtHand>(std::move(channel), std::move(desk), survives);
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

  void leave() override {
    line_->tell(DeskWord::kLeft, 0);
    line_->hang_up();
  }

 private:
  void hear(const DeskNote& note) {
    if (note.kind == DeskNote::kCalled) called_ = note.round;
  }

  // To the latest round that was called; the desk may have closed it meanwhile.
  std::optional<RoundCall> come() {
    const uint64_t round = std::exchange(called_, 0);
    line_->tell(DeskWord::kCame, round);
    for (;;) {
      const DeskNote note = *line_->take(true);
      hear(note);
      if (note.kind == DeskNote::kCalled || note.round != round) continue;
      if (note.kind == DeskNote::kClosed) return std::nullopt;
      std::vector<int> ranks;
      for (size_t r = 0; r < note.members.size(); ++r)
        if (note.members[r]) ranks.push_back(static_cast<int>(r));
      if (note.kind == DeskNote::kMembers) return RoundCall{.number = round, .ranks = ranks};
      std::string missing;
      for (const int rank : ranks)
        missing += (missing.empty() ? "rank " : ", ") + std::to_string(rank);
      throw Error(ErrorCode::kTimeout, "leader: did not come to round " + std::to_string(round) +
                                           " within the deadline: " + missing);
    }
  }

  std::unique_ptr<DeskLine> line_;
  uint64_t called_ = 0;  // and not answered
};

}  // namespace

std::unique_ptr<Pace> make_counted_pace(Group& group, uint64_t period,
                                        std::chrono::milliseconds patience) {
  return std::make_unique<CountedPace>(group, period, patience);
}

}  // namespace thinwire
