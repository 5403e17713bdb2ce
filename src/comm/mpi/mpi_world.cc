// Starts and ends MPI, and tells the other processes when this one is lost.
// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/mpi_world.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

namespace thinwire {

Result<MpiWorld*> MpiWorld::get() {
  static MpiWorld* const world = new MpiWorld;
  static const Status started = world->start();
  if (!started) return started;
  return world;
}

Status MpiWorld::start() {
  int initialized = 0, finalized = 0, level = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized) return Status::fail(ErrorCode::kUnsupported, "mpi: has ended already");
  if (initialized) {
    MPI_Query_thread(&level);
  } else {
    // One socket between two processes carries one direction at a time in practice; two of them
    // make 20 MB each way at 1 Gbit/s take 177 ms, not 340. What mpirun --mca or the user says
    // prevails.
    setenv("OMPI_MCA_btl_tcp_links", "2", /*overwrite=*/0);
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    started_here_ = true;
  }
  if (level < MPI_THREAD_MULTIPLE)
    return Status::fail(ErrorCode::kUnsupported, "mpi: does not let several threads call it");

  MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
  MPI_Comm_dup(MPI_COMM_WORLD, &notices_);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(notices_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  void* bound = nullptr;
  int found = 0;
  MPI_Comm_get_attr(comm_, MPI_TAG_UB, &bound, &found);
  const int largest_tag = found ? *static_cast<int*>(bound) : 32767;
  contexts_ = (static_cast<uint32_t>(largest_tag) + 1) / (2 * kTags);
  if (contexts_ <= kFirstContext + 1)
    return Status::fail(ErrorCode::kUnsupported,
                        "mpi: tags end at " + std::to_string(largest_tag) + ", too few for groups");
  watch_processes();
  post_listener();
  on_exit(&MpiWorld::at_exit, this);
  return Status::ok();
}

// A process that fails does not end MPI: mpirun sees it go without, ends the job and names it.
void MpiWorld::at_exit(int status, void* self) {
  auto& world = *static_cast<MpiWorld*>(self);
  if (status == 0 && world.started_here_ && world.all_end()) {
    const std::lock_guard lock(world.listening_);
    if (const auto inside = world.enter()) {
      MPI_Cancel(&world.listener_);
      MPI_Wait(&world.listener_, MPI_STATUS_IGNORE);
      MPI_Finalize();
    }
  }
  world.close();
}

// Waits for all processes to come here; false when one is lost. MPI_Finalize waits too, but cannot
// be left when the job fails meanwhile, and mpirun of Open MPI 4.1 then sometimes hangs instead of
// ending the job.
//
// Where something was given up, a process may be lost of which nobody here knows: then the end is
// awaited for a while only, and the others are told to do without.
bool MpiWorld::all_end() {
  constexpr auto kLongest = std::chrono::seconds(10);
  const auto until = std::chrono::steady_clock::now() + kLongest;
  const auto until_done = [&](std::span<MPI_Request> requests) {
    for (;;) {
      listen();
      if (any_lost_) return false;
      if (gave_up_ && std::chrono::steady_clock::now() >= until) {
        std::vector<Listener> all;
        for (int r = 0; r < size_; ++r) all.push_back({r, kEveryGroup});
        announce(all, "rank " + std::to_string(rank_) + " ended MPI without those that are lost");
        return false;
      }
      if (const auto inside = enter()) {
        int all = 0;
        if (MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all,
                        MPI_STATUSES_IGNORE) != MPI_SUCCESS)
          return false;
        if (all) return true;
      } else {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  };
  for (int distance = 1; distance < size_; distance *= 2) {
    MPI_Request requests[2];
    {
      const auto inside = enter();
      if (!inside) return false;
      MPI_Irecv(nullptr, 0, MPI_BYTE, (rank_ + size_ - distance) % size_, kEndTag, notices_,
                &requests[0]);
      MPI_Isend(nullptr, 0, MPI_BYTE, (rank_ + distance) % size_, kEndTag, notices_, &requests[1]);
    }
    if (!until_done(requests)) return false;
  }
  return true;
}

std::shared_lock<std::shared_mutex> MpiWorld::enter() {
  std::shared_lock lock(gate_);
  if (closed_) lock.unlock();
  return lock;
}

void MpiWorld::close() noexcept {
  const std::unique_lock lock(gate_);
  closed_ = true;
}

uint32_t MpiWorld::new_context() {
  const uint32_t context = next_context_++;
  if (context >= contexts_)
    throw Error(ErrorCode::kUnsupported,
                "mpi: no more than " + std::to_string(contexts_ - 2) + " groups in one process");
  return context;
}

// Notices on their way. MPI may know them for longer than their sender waits.
class MpiWorld::Notices final : public MpiKept {
 public:
  explicit Notices(MpiWorld& world) : world_(world) {}

  Notice& add(int to) {
    to_.push_back(to);
    return notices_.emplace_back();
  }

  // Once all are there: the memory of each stays where it is.
  void send() {
    sends_.assign(notices_.size(), MPI_REQUEST_NULL);
    const auto inside = world_.enter();
    if (!inside) return;
    for (size_t i = 0; i < notices_.size(); ++i)
      MPI_Isend(&notices_[i], sizeof(Notice), MPI_BYTE, to_[i], kNoticeTag, world_.notices_,
                &sends_[i]);
  }

  bool ended() override {
    const auto inside = world_.enter();
    if (!inside) return false;
    int all = 0;
    MPI_Testall(static_cast<int>(sends_.size()), sends_.data(), &all, MPI_STATUSES_IGNORE);
    return all != 0;
  }

 private:
  MpiWorld& world_;
  std::vector<int> to_;
  std::vector<Notice> notices_;
  std::vector<MPI_Request> sends_;
};

void MpiWorld::tell(News news, std::span<const Listener> listeners, std::string_view why) noexcept
    try {
  auto notices = std::make_unique<Notices>(*this);
  for (const Listener& listener : listeners) {
    Notice own{};
    const bool here = listener.rank == rank_;
    Notice& notice = here ? own : notices->add(listener.rank);
    notice.news = news;
    notice.context = listener.context;
    notice.rank = rank_;
    std::memcpy(notice.why, why.data(), std::min(why.size(), sizeof(Notice::why) - 1));
    if (listener.context == kEveryGroup || here) note(notice);
  }
  send_notices(std::move(notices), std::chrono::seconds(2));
} catch (...) {
  close();  // out of memory: the others will miss this rank at their deadline
}

void MpiWorld::send_letter(std::span<const int> to, std::span<const std::byte> letter) noexcept
    try {
  auto notices = std::make_unique<Notices>(*this);
  for (const int rank : to) {
    Notice& notice = notices->add(rank);
    notice.news = News::kMeeting;
    notice.context = static_cast<uint32_t>(std::min(letter.size(), kLetter));
    notice.rank = rank_;
    std::memcpy(notice.why, letter.data(), notice.context);
  }
  send_notices(std::move(notices), std::chrono::milliseconds(50));
} catch (...) {
  close();
}

void MpiWorld::send_notices(std::unique_ptr<Notices> notices,
                            std::chrono::milliseconds patience) noexcept {
  using std::chrono::steady_clock;
  const auto until = steady_clock::now() + patience;
  notices->send();
  while (!notices->ended()) {
    if (steady_clock::now() >= until || !enter()) {
      keep(std::move(notices));
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

std::vector<std::pair<int, std::vector<std::byte>>> MpiWorld::take_letters() {
  listen();
  const std::lock_guard lock(losses_);
  return std::exchange(letters_, {});
}

bool MpiWorld::has_ended(int rank) {
  const std::lock_guard lock(losses_);
  return ended_.contains(rank);
}

void MpiWorld::keep(std::unique_ptr<MpiKept> kept) {
  const std::lock_guard lock(keeping_);
  std::erase_if(kept_, [](const auto& one) { return one->ended(); });
  kept_.push_back(std::move(kept));
}

// mpirun ends the job of a process that dies, unless it was told to let the others recover; MPI
// itself says nothing then, and what was sent to that process never ends.
void MpiWorld::watch_processes() {
  struct Process {
    char system[64];   // one boot of one kernel
    uint64_t numbers;  // the namespace that process ids are of
    int64_t pid;
  };
  Process mine{.system = {}, .numbers = 0, .pid = getpid()};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(mine.system, sizeof mine.system - 1);
  struct stat numbers {};
  if (stat("/proc/self/ns/pid", &numbers) == 0) mine.numbers = numbers.st_ino;
  std::vector<Process> all(static_cast<size_t>(size_));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm_);
  if (mine.system[0] == 0 || mine.numbers == 0) return;
  for (int r = 0; r < size_; ++r) {
    const Process& other = all[static_cast<size_t>(r)];
    if (r == rank_ || other.numbers != mine.numbers ||
        std::memcmp(other.system, mine.system, sizeof mine.system) != 0)
      continue;
    const int pid = static_cast<int>(other.pid);
    const auto handle = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (handle >= 0) watched_.push_back({.rank = r, .pid = pid, .handle = handle});
  }
}

// A look costs a system call. What ended is believed after a while: a job that is not to recover is
// ended by mpirun meanwhile, which then names the process that failed first.
void MpiWorld::look_for_ended() {
  constexpr auto kPeriod = std::chrono::milliseconds(20);
  constexpr auto kDoubt = std::chrono::milliseconds(500);
  const auto now = std::chrono::steady_clock::now();
  if (watched_.empty() || now - looked_ < kPeriod) return;
  looked_ = now;
  std::vector<pollfd> handles;
  for (const Watched& one : watched_)
    handles.push_back({.fd = one.handle, .events = POLLIN, .revents = 0});
  if (poll(handles.data(), handles.size(), 0) <= 0) return;
  for (size_t i = handles.size(); i-- > 0;) {
    if (handles[i].revents == 0) continue;
    Watched& one = watched_[i];
    if (one.ended == std::chrono::steady_clock::time_point{}) one.ended = now;
    if (now - one.ended < kDoubt) continue;
    {
      const std::lock_guard lock(losses_);
      ended_[one.rank] = "rank " + std::to_string(one.rank) + " is gone: process " +
                         std::to_string(one.pid) + " has ended";
    }
    any_news_ = any_lost_ = true;
    ::close(one.handle);
    watched_.erase(watched_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void MpiWorld::post_listener() {
  MPI_Irecv(&heard_, sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE, kNoticeTag, notices_, &listener_);
}

// Who polls may do nothing else.
void MpiWorld::listen_now_and_then() {
  thread_local unsigned polls = 0;
  if (++polls % 32 == 0) listen();
}

void MpiWorld::listen() {
  const std::unique_lock lock(listening_, std::try_to_lock);
  if (!lock) return;  // another thread listens just now
  const auto inside = enter();
  if (!inside) return;
  look_for_ended();
  for (int heard = 1; heard != 0;) {
    if (MPI_Test(&listener_, &heard, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (heard != 0) {
      if (heard_.news != News::kMeeting) heard_.why[sizeof(Notice::why) - 1] = 0;
      note(heard_);
      post_listener();
    }
  }
}

void MpiWorld::note(const Notice& notice) {
  const std::lock_guard lock(losses_);
  if (notice.news == News::kMeeting) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(notice.why);
    letters_.emplace_back(
        notice.rank, std::vector<std::byte>(
                         bytes, bytes + std::min<size_t>(notice.context, sizeof(Notice::why))));
    return;
  }
  if (notice.news == News::kAborted)
    aborted_.try_emplace(notice.context, notice.why);
  else if (notice.context != kEveryGroup)
    lost_.try_emplace({notice.context, notice.rank}, notice.why);
  else if (lost_to_all_.empty())
    lost_to_all_ = notice.why;
  any_news_ = true;
  if (notice.news == News::kLost)
    any_lost_ = true;
  else
    gave_up_ = true;  // those that abort a group go on in another one
}

std::string MpiWorld::lost(uint32_t context, uint32_t family, int peer) {
  if (!any_news_) return {};
  const std::lock_guard lock(losses_);
  if (const auto gone = ended_.find(peer); gone != ended_.end()) return gone->second;
  if (!lost_to_all_.empty()) return lost_to_all_;
  if (const auto aborted = aborted_.find(family); family != 0 && aborted != aborted_.end())
    return aborted->second;
  const auto found = lost_.find({context, peer});
  return found == lost_.end() ? std::string() : found->second;
}

}  // namespace thinwire
