// Processes of mpirun meet: letters say who has come, and the lowest that is there decides who goes
// on.
//
// A process that comes says so to all of the last group, with the numbers that it has for the next
// one. The lowest of those that may be alive waits for the others, as long as they are not known to
// be lost and have not used up their time, and then tells all who goes on. If it is lost meanwhile,
// or silent, the next one does it. Two may decide differently if one of them is silent for long:
// then the groups are incomplete, nobody can begin to use them, and all meet again.
//
// Who is silent may be cut off and think the same of the others. So a process goes on only with
// more than half of those that are not known to be lost; or with half of them, if the lowest is
// among these. The first group is of all.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bitset>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "comm/first_group.h"
#include "comm/mpi/mpi_transfer.h"
#include "comm/mpi/mpi_world.h"
#include "core/bytes.h"
#include "thinwire/members.h"
#include "thinwire/survived.h"

namespace thinwire {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostMembers = 7680;
constexpr milliseconds kOnItsWay{50};

enum class Word : uint32_t { kHere, kGoOn, kLeft, kEnded, kIncomplete };

struct Letter {
  Word word = Word::kHere;
  uint32_t run = 0;         // of this process's, counted from 1
  uint32_t generation = 0;  // kHere: the lowest that the next group may have; kGoOn: its generation
  uint32_t context = 0;     // kHere: the numbers that the sender has for the group and its family
  uint32_t family = 0;
  // kGoOn: of the group; kIncomplete: missing in the first one.
  std::bitset<kMostMembers> ranks = {};
};
static_assert(sizeof(Letter) <= MpiWorld::kLetter);

class MpiMeetings final : public Members {
 public:
  MpiMeetings(MpiWorld& world, uint32_t run) : world_(world), run_(run) {
    for (int rank = 0; rank < world.size(); ++rank)
      if (rank == world.rank() || !world.has_ended(rank)) last_.push_back(rank);
  }

  ~MpiMeetings() override { tell({.word = Word::kLeft, .run = run_}, last_); }

  int number() const noexcept override { return world_.rank(); }
  bool is_newcomer() const noexcept override { return false; }
  int rank() const noexcept override { return rank_; }
  bool somebody_waits() override { return false; }

  bool is_alone() override {
    read_letters();
    return std::all_of(last_.begin(), last_.end(),
                       [&](int rank) { return rank == number() || is_lost(rank); });
  }

  int worker_of(uint32_t generation, int rank) const override {
    const auto found = workers_.find(generation);
    if (found == workers_.end() || rank < 0 || static_cast<size_t>(rank) >= found->second.size())
      return -1;
    return found->second[static_cast<size_t>(rank)];
  }

  void end() noexcept override { tell({.word = Word::kEnded, .run = run_}, last_); }

  Meeting meet(milliseconds patience, bool /*admit*/) override {
    here_ = {.word = Word::kHere,
             .run = run_,
             .generation = generation_ + 1,
             .context = world_.new_context(),
             .family = world_.new_context()};
    behind_since_.reset();
    tell(here_, last_);
    const auto since = Clock::now();
    std::optional<Letter> decision;
    while (!decision) {
      read_letters();
      if (ended_) return {};
      const auto waited = Clock::now() - since;
      const auto found = decided();
      if (!found && generation_ == 0) require_all(waited >= patience);
      if (found) {
        decision = found;
      } else if (decides(waited >= patience)) {
        decision = decide();
        tell(*decision, last_);
      } else if (waited >= 2 * patience) {
        letters_.clear();  // who was to decide may be silent; those that are there come again
        here_.run = 0;
        throw Error(ErrorCode::kPeerLost, "members: those that are left did not come together");
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      }
    }
    if (!decision->ranks[static_cast<size_t>(number())])
      throw SurvivedError(ErrorCode::kPeerLost, "members: the others went on without rank " +
                                                    std::to_string(number()) +
                                                    ", which did not come in time");
    return come_into(*decision, Clock::now() + patience);
  }

 private:
  bool is_lost(int rank) { return left_.contains(rank) || world_.has_ended(rank); }

  // Whether it is there: its last word is for a later group than this process's last.
  bool is_here(int rank) const {
    const auto found = letters_.find(rank);
    return rank == number() || (found != letters_.end() && found->second.generation > generation_);
  }

  void tell(const Letter& letter, const std::vector<int>& ranks) noexcept {
    std::vector<int> others;
    for (const int rank : ranks)
      if (rank != number() && !is_lost(rank)) others.push_back(rank);
    world_.send_letter(others, byte_view(letter));
  }

  void read_letters() {
    for (auto& [from, bytes] : world_.take_letters()) post(from, bytes);
    for (auto& [from, letter] : take_posted()) {
      switch (letter.word) {
        case Word::kHere:
          letters_[from] = letter;
          break;
        case Word::kGoOn:
          decisions_[letter.generation] = letter;
          break;
        case Word::kLeft:
          left_.insert(from);
          break;
        case Word::kEnded:
          ended_ = true;
          break;
        case Word::kIncomplete:
          incomplete_ = letter;
          break;
      }
    }
    tell_again();
  }

  // Those that have been in a later group, into which this process could not come, must hear again.
  // They may also just have left the one that this process is about to enter: the letter about it
  // gets some time to arrive.
  void tell_again() {
    uint32_t latest = 0;
    for (const auto& [from, letter] : letters_) latest = std::max(latest, letter.generation);
    if (here_.run == 0 || latest <= here_.generation || decided()) {
      behind_since_.reset();
      return;
    }
    if (!behind_since_) behind_since_ = Clock::now();
    if (Clock::now() - *behind_since_ < kOnItsWay) return;
    here_.generation = latest;
    tell(here_, last_);
  }

  // Letters are the process's, and may be of the next run, whose Members are not there yet.
  void post(int from, const std::vector<std::byte>& bytes) {
    if (bytes.size() != sizeof(Letter)) return;
    Letter letter;
    std::memcpy(&letter, bytes.data(), sizeof letter);
    const std::lock_guard lock(posting());
    posted().emplace_back(from, letter);
  }

  std::vector<std::pair<int, Letter>> take_posted() {
    const std::lock_guard lock(posting());
    std::vector<std::pair<int, Letter>> mine, later;
    for (auto& one : posted()) {
      if (one.second.run == run_) mine.push_back(one);
      if (one.second.run > run_) later.push_back(one);
    }
    posted() = std::move(later);
    return mine;
  }

  static std::mutex& posting() {
    static std::mutex mutex;
    return mutex;
  }
  static std::vector<std::pair<int, Letter>>& posted() {
    static std::vector<std::pair<int, Letter>> letters;
    return letters;
  }

  std::optional<Letter> decided() const {
    const auto found = decisions_.upper_bound(generation_);
    if (found == decisions_.end()) return std::nullopt;
    return std::prev(decisions_.end())->second;
  }

  // Before the first group. Who finds that it is not complete tells the others whom it misses.
  void require_all(bool late) {
    if (!incomplete_) {
      Letter found{.word = Word::kIncomplete, .run = run_};
      for (const int rank : last_)
        if (rank != number() && (is_lost(rank) || (late && !is_here(rank))))
          found.ranks.set(static_cast<size_t>(rank));
      if (found.ranks.none()) return;
      incomplete_ = found;
      tell(found, last_);
    }
    std::vector<int> missing;
    for (const int rank : last_)
      if (incomplete_->ranks[static_cast<size_t>(rank)]) missing.push_back(rank);
    throw AgreedError(ErrorCode::kPeerLost, first_group_without(missing, last_.size()));
  }

  // Whether it is for this process to decide: at the latest when those below it have been waited
  // for long enough.
  bool decides(bool late) {
    bool all_here = true;
    for (const int rank : last_) {
      if (rank == number() || is_lost(rank)) continue;
      const bool here = is_here(rank);
      if (rank < number() && (here || !late)) return false;
      all_here = all_here && here;
    }
    return all_here || late;
  }

  Letter decide() {
    Letter decision{.word = Word::kGoOn, .run = run_, .generation = here_.generation};
    size_t present = 0, may_live = 0;
    int lowest = number();
    for (const int rank : last_) {
      if (rank != number() && is_lost(rank)) continue;
      ++may_live;
      lowest = std::min(lowest, rank);
      if (!is_here(rank)) continue;
      ++present;
      decision.ranks.set(static_cast<size_t>(rank));
      if (rank != number())
        decision.generation = std::max(decision.generation, letters_.at(rank).generation);
    }
    const bool has_lowest = decision.ranks[static_cast<size_t>(lowest)];
    if (2 * present < may_live || (2 * present == may_live && !has_lowest))
      throw SurvivedError(
          ErrorCode::kPeerLost,
          "members: " + std::to_string(may_live - present) + " of " + std::to_string(may_live) +
              " workers are silent, and may have gone on without rank " + std::to_string(number()));
    return decision;
  }

  // The others' numbers may still be on their way. Its own are used from now on: it must not tell
  // them for a later group.
  Meeting come_into(const Letter& decision, Clock::time_point until) {
    here_.run = 0;
    std::vector<int> ranks;
    for (int rank = 0; rank < world_.size(); ++rank)
      if (decision.ranks[static_cast<size_t>(rank)]) ranks.push_back(rank);
    for (const int rank : ranks)
      while (!is_here(rank)) {
        if (Clock::now() >= until || is_lost(rank)) break;  // the group says so
        std::this_thread::sleep_for(std::chrono::microseconds(500));
        read_letters();
      }
    auto family = std::make_shared<MpiFamily>();
    MpiGroupState members{.world = &world_,
                          .world_ranks = ranks,
                          .contexts = {},
                          .bodies = std::vector<uint32_t>(ranks.size()),
                          .cause = {}};
    family->world_ranks = ranks;
    family->own = here_.family;
    for (size_t i = 0; i < ranks.size(); ++i) {
      const bool me = ranks[i] == number();
      if (me) members.rank = rank_ = static_cast<int>(i);
      const Letter& of = me ? here_ : letters_[ranks[i]];
      members.contexts.push_back(of.context);
      family->contexts.push_back(of.family);
    }
    members.family = std::move(family);
    generation_ = decision.generation;
    last_ = ranks;
    workers_[generation_] = ranks;
    return {.group = make_group_of(std::move(members)),
            .generation = generation_,
            .workers = std::move(ranks),
            .newcomers = {}};
  }

  MpiWorld& world_;
  const uint32_t run_;
  uint32_t generation_ = 0;        // of the last group
  int rank_ = -1;                  // in it
  std::vector<int> last_;          // its ranks in the world; at first all
  Letter here_{};                  // what this process told last; of run 0 when it is in no meeting
  std::map<int, Letter> letters_;  // the last kHere of others
  std::optional<Clock::time_point> behind_since_;  // letters were for later groups
  std::map<uint32_t, Letter> decisions_;
  std::set<int> left_;
  bool ended_ = false;
  std::optional<Letter> incomplete_;
  std::map<uint32_t, std::vector<int>> workers_;  // by generation
};

}  // namespace

Result<std::unique_ptr<Members>> make_mpi_members() {
  auto world = MpiWorld::get();
  if (!world) return world.status();
  if (static_cast<size_t>(world.value()->size()) > kMostMembers)
    return Status::fail(ErrorCode::kUnsupported,
                        "mpi: no more than " + std::to_string(kMostMembers) + " members");
  static std::mutex mutex;
  static uint32_t runs = 0;
  const std::lock_guard lock(mutex);
  return std::unique_ptr<Members>(std::make_unique<MpiMeetings>(*world.value(), ++runs));
}

}  // namespace thinwire
