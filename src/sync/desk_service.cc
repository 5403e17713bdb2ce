// One loop: what came from whom, what the desk says to it, what has passed.
// SPDX-License-Identifier: Apache-2.0
#include "sync/desk_service.h"

#include <chrono>
#include <cstring>
#include <span>

namespace thinwire {
namespace {

// Looks in a row without anything before the thread sleeps, and for how long: workers take steps of
// milliseconds, and each look takes the core from one of them.
constexpr auto kNap = std::chrono::microseconds(200);

template <typename T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(value));
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
  if (words[0] > DeskNote::kFailed) return std::nullopt;
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
      thread_([this] { run(); }) {}

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
  if (wait) changed_.wait(lock, [&] { return !mine_.empty() || !error_.empty(); });
  if (!error_.empty()) throw Error(ErrorCode::kPeerLost, "desk: " + error_);
  if (mine_.empty()) return std::nullopt;
  DeskNote note = std::move(mine_.front());
  mine_.pop_front();
  return note;
}

void DeskService::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return idle_ || !error_.empty(); });
}

void DeskService::run() {
  try {
    for (int rank = 1; rank < channel_->size(); ++rank) {
      Line& line = lines_[static_cast<size_t>(rank)];
      line.in = channel_->receive(bytes_of(line.message), rank, kDeskTag);
    }
    for (;;) {
      const bool moved = look();
      std::unique_lock lock(mutex_);
      idle_ = desk_.live() == 0 && notes_.empty();
      if (idle_) changed_.notify_all();
      if (stop_) return;
      if (!moved) changed_.wait_for(lock, kNap, [&] { return stop_ || !told_.empty(); });
    }
  } catch (const std::exception& error) {
    channel_->abort(error.what());
    const std::lock_guard lock(mutex_);
    error_ = error.what();
    changed_.notify_all();
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
  hand_out(desk_.waited(RoundDesk::Clock::now()));
  std::vector<int> gone;
  for (Note& note : notes_) {
    try {
      if (note.out != nullptr && note.out->done()) note.out.reset();
    } catch (const Error& error) {
      note.out.reset();
      if (!survives_losses_ || error.code() != ErrorCode::kPeerLost) throw;
      gone.push_back(note.to);
    }
  }
  for (const int rank : gone) lose(rank);
  while (!notes_.empty() && notes_.front().out == nullptr) notes_.pop_front();
  return moved || !told.empty();
}

// One message at most, so that a fast worker is not the only one heard.
bool DeskService::listen(int rank) {
  Line& line = lines_[static_cast<size_t>(rank)];
  if (line.in == nullptr) return false;
  try {
    if (!line.in->done()) return false;
    const DeskMessage message = line.message;
    if (static_cast<DeskWord>(message[0]) == DeskWord::kLeft)
      line.in.reset();
    else
      line.in = channel_->receive(bytes_of(line.message), rank, kDeskTag);
    hand_out(answer(rank, message));
  } catch (const Error& error) {
    if (!survives_losses_ || error.code() != ErrorCode::kPeerLost) throw;
    lose(rank);
  }
  return true;
}

void DeskService::lose(int rank) {
  Line& line = lines_[static_cast<size_t>(rank)];
  if (line.lost) return;
  line.lost = true;
  line.in.reset();
  hand_out(desk_.left(rank, RoundDesk::Clock::now()));
}

std::vector<DeskNote> DeskService::answer(int rank, const DeskMessage& message) {
  const auto now = RoundDesk::Clock::now();
  switch (static_cast<DeskWord>(message[0])) {
    case DeskWord::kStepped:
      return desk_.stepped(rank, now);
    case DeskWord::kCame:
      return desk_.came(rank, message[1], now);
    case DeskWord::kLeft:
      return desk_.left(rank, now);
  }
  throw Error(ErrorCode::kCorrupt, "desk: rank " + std::to_string(rank) + " says what is no word");
}

void DeskService::hand_out(const std::vector<DeskNote>& notes) {
  for (const DeskNote& note : notes) {
    if (note.to == 0) {
      const std::lock_guard lock(mutex_);
      mine_.push_back(note);
      changed_.notify_all();
      continue;
    }
    if (lines_[static_cast<size_t>(note.to)].lost) continue;
    Note& sent = notes_.emplace_back();
    sent.to = note.to;
    sent.bytes.resize(note_size(channel_->size()));
    write_note(note, sent.bytes);
    sent.out = channel_->send(sent.bytes, note.to, kNoteTag);
  }
}

}  // namespace thinwire
