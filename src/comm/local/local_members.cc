// Workers that are threads of this process meet under one lock: who is alive is known exactly.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/first_group.h"
#include "core/check.h"
#include "thinwire/members.h"
#include "thinwire/survived.h"

namespace thinwire {

class LocalMeeting {
 public:
  using Clock = std::chrono::steady_clock;

  explicit LocalMeeting(int workers) : expected_(workers) {
    THINWIRE_CHECK(workers >= 1, "members: " + std::to_string(workers) + " workers");
  }

  int enter() {
    const std::lock_guard lock(mutex_);
    const int number = entered_++;
    seats_[number].is_new = number >= expected_;
    changed_.notify_all();
    return number;
  }

  void leave(int number) noexcept {
    const std::lock_guard lock(mutex_);
    seats_.erase(number);
    try {
      if (!has_begun() && number < expected_ && failure_.empty())
        failure_ = first_group_without({number}, static_cast<size_t>(expected_));
      if (has_begun() && all_came()) close();
    } catch (...) {  // out of memory: the others go on when they have waited long enough
    }
    changed_.notify_all();
  }

  Meeting meet(int number, std::chrono::milliseconds patience, bool admit) {
    std::unique_lock lock(mutex_);
    Seat& seat = seats_.at(number);
    const auto may_end = [&] { return ended_ || seat.left_out || seat.found || !failure_.empty(); };
    if (!may_end()) {
      if (!seat.is_new && std::none_of(seats_.begin(), seats_.end(), waits_as_member))
        since_ = Clock::now();
      seat.waits = true;
      seat.admits = admit;
      if (all_came()) close();
      changed_.notify_all();
    }
    while (!may_end()) {
      if (seat.is_new) {
        if (members() == 0) {
          seat.waits = false;
          throw Error(ErrorCode::kPeerLost, "members: no worker is left that worker " +
                                                std::to_string(number) + " could join");
        }
        changed_.wait(lock);
      } else if (changed_.wait_until(lock, since_ + patience) == std::cv_status::timeout &&
                 !may_end() && Clock::now() >= since_ + patience) {
        seat.waits = entered_ >= expected_;
        THINWIRE_CHECK(entered_ >= expected_,
                       "members: " + std::to_string(entered_) + " of " + std::to_string(expected_) +
                           " workers came within " + std::to_string(patience.count()) + " ms");
        if (has_begun())
          close();
        else
          give_up_beginning();
      }
    }
    seat.waits = false;
    if (seat.found) return *std::exchange(seat.found, std::nullopt);
    if (!failure_.empty()) throw AgreedError(ErrorCode::kPeerLost, failure_);
    if (seat.left_out)
      throw SurvivedError(ErrorCode::kPeerLost, "members: the others went on without worker " +
                                                    std::to_string(number) +
                                                    ", which did not come in time");
    return {};
  }

  bool somebody_waits() {
    const std::lock_guard lock(mutex_);
    return std::any_of(seats_.begin(), seats_.end(),
                       [](const auto& one) { return one.second.is_new && one.second.waits; });
  }

  bool is_alone(int number) {
    const std::lock_guard lock(mutex_);
    return std::none_of(seats_.begin(), seats_.end(), [&](const auto& one) {
      return one.first != number && !one.second.is_new && !one.second.left_out;
    });
  }

  bool is_newcomer(int number) {
    const std::lock_guard lock(mutex_);
    return seats_.at(number).is_new;
  }

  int worker_of(uint32_t generation, int rank) {
    const std::lock_guard lock(mutex_);
    const auto found = workers_.find(generation);
    if (found == workers_.end() || rank < 0 || static_cast<size_t>(rank) >= found->second.size())
      return -1;
    return found->second[static_cast<size_t>(rank)];
  }

  void end() noexcept {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

 private:
  struct Seat {
    bool is_new = false;  // not admitted yet
    bool waits = false;   // in meet
    bool admits = false;
    bool left_out = false;
    std::optional<Meeting> found;
  };
  using Entry = std::pair<const int, Seat>;

  static bool is_member(const Entry& one) { return !one.second.is_new && !one.second.left_out; }
  static bool waits_as_member(const Entry& one) { return is_member(one) && one.second.waits; }

  size_t members() const {
    return static_cast<size_t>(std::count_if(seats_.begin(), seats_.end(), is_member));
  }

  bool has_begun() const { return !workers_.empty(); }

  // All that begin the run have entered, and some of them are late. Those find it when they come.
  void give_up_beginning() {
    std::vector<int> missing;
    for (const Entry& one : seats_)
      if (is_member(one) && !one.second.waits) missing.push_back(one.first);
    failure_ = first_group_without(missing, static_cast<size_t>(expected_));
    changed_.notify_all();
  }

  bool all_came() const {
    return entered_ >= expected_ && members() > 0 &&
           std::all_of(seats_.begin(), seats_.end(),
                       [](const Entry& one) { return !is_member(one) || one.second.waits; });
  }

  // Those that wait are the next group; members that do not are left out.
  void close() {
    bool admit = has_begun();
    for (const Entry& one : seats_) admit = admit && (!waits_as_member(one) || one.second.admits);
    Meeting meeting{.group = nullptr, .generation = ++generation_};
    for (Entry& one : seats_) {
      Seat& seat = one.second;
      if (is_member(one) && !seat.waits) seat.left_out = true;
      if (!seat.waits || seat.left_out || (seat.is_new && !admit)) continue;
      if (seat.is_new) meeting.newcomers.push_back(one.first);
      meeting.workers.push_back(one.first);
      seat.is_new = false;
    }
    workers_[generation_] = meeting.workers;
    auto groups = make_local_groups(static_cast<int>(meeting.workers.size()));
    for (size_t rank = 0; rank < groups.size(); ++rank) {
      Seat& seat = seats_.at(meeting.workers[rank]);
      seat.waits = false;
      seat.found = {.group = std::move(groups[rank]),
                    .generation = meeting.generation,
                    .workers = meeting.workers,
                    .newcomers = meeting.newcomers};
    }
    changed_.notify_all();
  }

  const int expected_;  // to begin with
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Seat> seats_;  // of those that are there, by number
  int entered_ = 0;
  uint32_t generation_ = 0;
  std::map<uint32_t, std::vector<int>> workers_;  // by generation
  Clock::time_point since_;                       // the first of those that wait came
  bool ended_ = false;
  std::string failure_;  // of the first group; empty: none
};

namespace {

class LocalMembers final : public Members {
 public:
  LocalMembers(std::shared_ptr<LocalMeeting> meeting, int number)
      : meeting_(std::move(meeting)), number_(number) {}
  ~LocalMembers() override { meeting_->leave(number_); }

  int number() const noexcept override { return number_; }
  bool is_newcomer() const noexcept override { return meeting_->is_newcomer(number_); }
  int rank() const noexcept override { return rank_; }
  Meeting meet(std::chrono::milliseconds patience, bool admit) override {
    Meeting meeting = meeting_->meet(number_, patience, admit);
    if (meeting.group != nullptr) rank_ = meeting.group->rank();
    return meeting;
  }
  bool somebody_waits() override { return meeting_->somebody_waits(); }
  bool is_alone() override { return meeting_->is_alone(number_); }
  int worker_of(uint32_t generation, int rank) const override {
    return meeting_->worker_of(generation, rank);
  }
  void end() noexcept override { meeting_->end(); }

 private:
  const std::shared_ptr<LocalMeeting> meeting_;
  const int number_;
  int rank_ = -1;
};

}  // namespace

MeetingPlace::MeetingPlace(int workers) : meeting_(std::make_shared<LocalMeeting>(workers)) {}

std::unique_ptr<Members> MeetingPlace::enter() {
  return std::make_unique<LocalMembers>(meeting_, meeting_->enter());
}

}  // namespace thinwire
