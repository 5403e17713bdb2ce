// RoundDesk: counts the workers' steps, calls rounds, and closes them.
// SPDX-License-Identifier: Apache-2.0
#include "sync/round_desk.h"

#include <algorithm>

namespace thinwire {

RoundDesk::RoundDesk(int ranks, uint64_t period, std::chrono::milliseconds patience,
                     std::chrono::milliseconds deadline)
    : period_(period),
      patience_(patience),
      deadline_(deadline),
      live_(static_cast<size_t>(ranks), true),
      came_(static_cast<size_t>(ranks), false),
      next_(period * static_cast<uint64_t>(ranks)) {}

int RoundDesk::live() const noexcept {
  return static_cast<int>(std::count(live_.begin(), live_.end(), true));
}

bool RoundDesk::all_came() const noexcept {
  for (size_t r = 0; r < live_.size(); ++r)
    if (live_[r] && !came_[r]) return false;
  return true;
}

void RoundDesk::open_if_due(Clock::time_point now, std::vector<DeskNote>& notes) {
  if (open_ || steps_ < next_ || live() == 0) return;
  open_ = true;
  ++round_;
  next_ += period_ * static_cast<uint64_t>(live());
  called_at_ = now;
  came_.assign(came_.size(), false);
  for (size_t r = 0; r < live_.size(); ++r)
    if (live_[r])
      notes.push_back(
          {.kind = DeskNote::Kind::kCalled, .to = static_cast<int>(r), .round = round_});
}

void RoundDesk::close(DeskNote::Kind kind, Clock::time_point now, std::vector<DeskNote>& notes) {
  for (size_t r = 0; r < came_.size(); ++r)
    if (came_[r])
      notes.push_back({.kind = kind, .to = static_cast<int>(r), .round = round_, .members = came_});
  open_ = false;
  open_if_due(now, notes);
}

std::vector<DeskNote> RoundDesk::on_step(int rank, Clock::time_point now) {
  std::vector<DeskNote> notes;
  if (!live_[static_cast<size_t>(rank)]) return notes;
  ++steps_;
  open_if_due(now, notes);
  return notes;
}

std::vector<DeskNote> RoundDesk::on_arrival(int rank, uint64_t round, Clock::time_point now) {
  if (!open_ || round != round_ || !live_[static_cast<size_t>(rank)])
    return {{.kind = DeskNote::Kind::kClosed, .to = rank, .round = round}};
  std::vector<DeskNote> notes;
  came_[static_cast<size_t>(rank)] = true;
  if (all_came()) close(DeskNote::Kind::kMembers, now, notes);
  return notes;
}

std::vector<DeskNote> RoundDesk::on_leave(int rank, Clock::time_point now) {
  std::vector<DeskNote> notes;
  live_[static_cast<size_t>(rank)] = false;
  came_[static_cast<size_t>(rank)] = false;
  if (open_ && all_came()) close(DeskNote::Kind::kMembers, now, notes);
  return notes;
}

std::vector<DeskNote> RoundDesk::on_time(Clock::time_point now) {
  std::vector<DeskNote> notes;
  const bool anybody = std::find(came_.begin(), came_.end(), true) != came_.end();
  if (!open_ || !anybody) return notes;
  const auto passed = now - called_at_;
  if (patience_.count() > 0 && passed >= patience_) close(DeskNote::Kind::kMembers, now, notes);
  if (patience_.count() == 0 && passed >= deadline_) {
    std::vector<bool> missing(live_);
    for (size_t r = 0; r < missing.size(); ++r) missing[r] = live_[r] && !came_[r];
    close(DeskNote::Kind::kFailed, now, notes);
    for (DeskNote& note : notes)
      if (note.kind == DeskNote::Kind::kFailed) note.members = missing;
  }
  return notes;
}

}  // namespace thinwire
