// DeskService: the desk's thread: receives reports, asks RoundDesk, and sends notes.
// SPDX-License-Identifier: Apache-2.0
#include "sync/desk_service.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "comm/peer_lost.h"
#include "core/bytes.h"
#include "core/named_thread.h"

namespace thinwire {
namespace {

// Looks in a row without anything before the thread sleeps, and for how long: workers take steps of
// milliseconds, and each look takes the core from one of them.
constexpr auto kNap = std::chrono::microseconds(200);

// What a group says of a lost rank, without what was waited for.
std::string cause_of(const Error& error) {
  const auto* lost = dynamic_cast<const PeerLost*>(&error);
  return lost != nullptr ? lost->cause() : error.what();
}

}  // namespace

void write_note(const DeskNote& note, std::vector<std::byte>& out) {
  const uint64_t words[] = {static_cast<uint64_t>(note.kind), note.round};
  std::memcpy(out.data(), words, sizeof words);
  for (size_t r = 0; r + sizeof words < out.size(); ++r)
    out[sizeof words + r] = std::byte{r < note.members.size() && note.members[r]};
}

std::optional<DeskNote> read_note(const std::vector<std::byte>& bytes, int rank) {
  uint64_t words[2];
  std::memcpy(words, bytes.data(), sizeof words);
  if (words[0] > static_cast<uint64_t>(DeskNote::Kind::kAlive)) return std::nullopt;
  DeskNote note{.kind = static_cast<DeskNote::Kind>(words[0]), .to = rank, .round = words[1]};
  for (size_t at = sizeof words; at < bytes.size(); ++at) {
    if (bytes[at] > std::byte{1}) return std::nullopt;
    note.members.push_back(bytes[at] == std::byte{1});
  }
  return note;
}

DeskService::DeskService(std::unique_ptr<Group> channel, RoundDesk desk, bool survives_losses)
    : channel_(std::move(channel)),
      desk_(std::move(desk)),
      survives_losses_(survives_losses),
      lines_(static_cast<size_t>(channel_->size())),
      thread_(named_thread("tw-desk", [this] { run(); })) {}

DeskService::~DeskService() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DeskService::tell(DeskWord word, uint64_t round) {
  {
    const std::lock_guard lock(mutex_);
    told_.push_back({static_cast<uint64_t>(word), round});
  }
  changed_.notify_all();
}

std::optional<DeskNote> DeskService::take(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) changed_.wait(lock, [&] { return !mine_.empty() || error_ != nullptr; });
  if (error_ != nullptr) std::rethrow_exception(error_);
  if (mine_.empty()) return std::nullopt;
  DeskNote note = std::move(mine_.front());
  mine_.pop_front();
  return note;
}

std::vector<LostWorker> DeskService::lost() {
  const std::lock_guard lock(mutex_);
  return losses_;
}

void DeskService::run() {
  try {
    serve();
  } catch (const Error& error) {
    fail(error.code(), error.what());
  } catch (const std::exception& error) {
    fail(ErrorCode::kContract, error.what());
  } catch (...) {
    fail(ErrorCode::kContract, "unknown error");
  }
}

// The code stays: those who call take know by it whether a worker is lost, which they may survive.
void DeskService::fail(ErrorCode code, const std::string& why) {
  channel_->abort(why);
  const std::lock_guard lock(mutex_);
  error_ = std::make_exception_ptr(Error(code, "desk: " + why));
  changed_.notify_all();
}

void DeskService::serve() {
  for (int rank = 1; rank < channel_->size(); ++rank) {
    Line& line = lines_[static_cast<size_t>(rank)];
    line.in = channel_->receive(writable_byte_view(line.message), rank, kDeskTag);
  }
  for (;;) {
    const bool moved = look();
    std::unique_lock lock(mutex_);
    if (stop_) return;
    if (!moved) changed_.wait_for(lock, kNap, [&] { return stop_ || !told_.empty(); });
  }
}

// Whether anything happened.
bool DeskService::look() {
  bool moved = false;
  for (int rank = 1; rank < channel_->size(); ++rank) moved |= listen(rank);
  std::deque<DeskMessage> told;
  {
    const std::lock_guard lock(mutex_);
    told.swap(told_);
  }
  for (const DeskMessage& message : told) hand_out(answer(0, message));
  const auto now = RoundDesk::Clock::now();
  hand_out(desk_.on_time(now));
  look_for_silence(now);
  tell_those_who_left(now);
  look_at_notes();
  if (desk_.live() == 0) end();
  return moved || !told.empty();
}

void DeskService::look_at_notes() {
  std::vector<std::pair<int, std::string>> gone;
  for (Note& note : notes_) {
    try {
      if (note.out != nullptr && note.out->done()) note.out.reset();
    } catch (const Error& error) {
      Line& line = lines_[static_cast<size_t>(note.to)];
      const bool is_fatal = !survives_losses_ && !note.alive;
      if (is_fatal || error.code() != ErrorCode::kPeerLost) throw;
      line.gone = true;
      gone.emplace_back(note.to, cause_of(error));
      stuck_.push_back(std::move(note));
      note.out = nullptr;
    }
  }
  for (const auto& [rank, why] : gone) lose(rank, why);
  std::erase_if(notes_, [](const Note& note) { return note.out == nullptr; });
}

// One message at most, so that a fast worker is not the only one heard.
bool DeskService::listen(int rank) {
  Line& line = lines_[static_cast<size_t>(rank)];
  try {
    if (line.reason_in != nullptr) return hear_reason(rank);
    if (line.in == nullptr) return false;
    if (!line.in->done()) return false;
    line.heard = RoundDesk::Clock::now();
    const DeskMessage message = line.message;
    const auto word = static_cast<DeskWord>(message[0]);
    line.left = word == DeskWord::kLeft;
    if (word == DeskWord::kFailed) {
      line.in.reset();
      line.reason_in = channel_->receive(writable_byte_view(line.reason), rank, kReasonTag);
      return true;
    }
    if (line.left)
      line.in.reset();
    else
      line.in = channel_->receive(writable_byte_view(line.message), rank, kDeskTag);
    const std::vector<DeskNote> notes = answer(rank, message);
    // Who comes to a round that was held without it has an answer, and nobody to wait for.
    line.came = word == DeskWord::kCame &&
                std::none_of(notes.begin(), notes.end(), [&](const DeskNote& note) {
                  return note.kind == DeskNote::Kind::kClosed && note.to == rank;
                });
    hand_out(notes);
  } catch (const Error& error) {
    if (!survives_losses_ || error.code() != ErrorCode::kPeerLost) throw;
    lose(rank, cause_of(error));
  }
  return true;
}

// A worker may die after it said that it failed, and before it said why. Others do not wait for
// that.
bool DeskService::hear_reason(int rank) {
  Line& line = lines_[static_cast<size_t>(rank)];
  if (line.reason_in->done()) {
    line.reason.back() = 0;
    lose(rank, line.reason.data());
    return true;
  }
  if (RoundDesk::Clock::now() - line.heard < silence_limit()) return false;
  lose(rank, "it failed, and did not say why");
  return true;
}

// They wait for the end, and no wait is longer than a few deadlines.
void DeskService::tell_those_who_left(RoundDesk::Clock::time_point now) {
  if (ended_ || now - told_alive_ < channel_->deadline() / 2) return;
  told_alive_ = now;
  DeskNote note{.kind = DeskNote::Kind::kAlive, .to = 1, .round = 0, .members = {}};
  note.members.resize(lines_.size());
  for (; note.to < channel_->size(); ++note.to) {
    const Line& line = lines_[static_cast<size_t>(note.to)];
    const bool waits = std::any_of(notes_.begin(), notes_.end(),
                                   [&](const Note& other) { return other.to == note.to; });
    if (line.left && !line.gone && !waits) send(note);
  }
}

std::chrono::milliseconds DeskService::silence_limit() const {
  return channel_->deadline() * 9 / 10;
}

// A worker that came to a round says nothing while it waits for the others. It gets three
// deadlines, which is as long as its own waits can take.
void DeskService::look_for_silence(RoundDesk::Clock::time_point now) {
  const bool alone = own_left_ != RoundDesk::Clock::time_point{};
  if (!survives_losses_ && !alone) return;  // rounds have a deadline of their own
  for (int rank = 1; rank < channel_->size(); ++rank) {
    const Line& line = lines_[static_cast<size_t>(rank)];
    if (line.lost || line.left) continue;
    const auto limit = line.came ? 3 * channel_->deadline() : silence_limit();
    const auto since = survives_losses_ ? line.heard : std::max(line.heard, own_left_);
    if (now - since < limit) continue;
    const std::string why = "said nothing for " + std::to_string(limit.count()) + " ms";
    if (!survives_losses_)
      throw Error(ErrorCode::kTimeout, "rank " + std::to_string(rank) + " " + why);
    lose(rank, why, /*tell=*/true);
  }
}

void DeskService::lose(int rank, const std::string& why, bool tell) {
  Line& line = lines_[static_cast<size_t>(rank)];
  if (line.lost || line.left) return;
  line.in.reset();
  line.reason_in.reset();
  {
    const std::lock_guard lock(mutex_);
    losses_.push_back({.rank = rank, .why = why});
  }
  DeskNote note{.kind = DeskNote::Kind::kLost, .to = 0, .round = 0, .members = {}};
  note.members.resize(lines_.size());
  note.members[static_cast<size_t>(rank)] = true;
  for (; note.to < channel_->size(); ++note.to)
    if (note.to != rank || tell) send(note);
  line.lost = true;
  hand_out(desk_.on_leave(rank, RoundDesk::Clock::now()));
}

// To those who left first, so that this rank goes when all of them know.
void DeskService::end() {
  DeskNote note{.kind = DeskNote::Kind::kEnd, .to = 0, .round = 0, .members = {}};
  note.members.push_back(true);
  for (size_t rank = 1; rank < lines_.size(); ++rank) note.members.push_back(lines_[rank].left);
  if (!std::exchange(ended_, true)) {
    for (note.to = 1; note.to < channel_->size(); ++note.to)
      if (note.members[static_cast<size_t>(note.to)]) send(note);
  } else if (!told_end_ && std::none_of(notes_.begin(), notes_.end(), [&](const Note& on_its_way) {
               return !lines_[static_cast<size_t>(on_its_way.to)].lost;
             })) {
    told_end_ = true;
    note.to = 0;
    send(note);
  }
}

std::vector<DeskNote> DeskService::answer(int rank, const DeskMessage& message) {
  const auto now = RoundDesk::Clock::now();
  switch (static_cast<DeskWord>(message[0])) {
    case DeskWord::kStepped:
      return desk_.on_step(rank, now);
    case DeskWord::kCame:
      return desk_.on_arrival(rank, message[1], now);
    case DeskWord::kLeft:
      if (rank == 0) own_left_ = now;
      return desk_.on_leave(rank, now);
    case DeskWord::kFailed:
      break;
  }
  throw Error(ErrorCode::kCorrupt, "rank " + std::to_string(rank) + " says what is no word");
}

void DeskService::hand_out(const std::vector<DeskNote>& notes) {
  for (const DeskNote& note : notes) send(note);
}

void DeskService::send(const DeskNote& note) {
  if (note.to == 0) {
    const std::lock_guard lock(mutex_);
    mine_.push_back(note);
    changed_.notify_all();
    return;
  }
  if (lines_[static_cast<size_t>(note.to)].lost) return;
  Note& sent = notes_.emplace_back();
  sent.to = note.to;
  sent.alive = note.kind == DeskNote::Kind::kAlive;
  sent.bytes.resize(note_size(channel_->size()));
  write_note(note, sent.bytes);
  sent.out = channel_->send(sent.bytes, note.to, kNoteTag);
}

}  // namespace thinwire
