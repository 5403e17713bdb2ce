// Members: workers that come and go during a run, and the groups that they form one after the
// other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/status.h"

namespace thinwire {

// What workers came to when they met.
struct Meeting {
  std::unique_ptr<Group> group;  // null: the run has ended on one of them, so nothing is left to do
  uint32_t generation = 0;       // higher than that of every group before
  std::vector<int> workers = {};  // their numbers, by rank of the group; ascending
  std::vector<int> newcomers =
      {};  // those of them that were in no group before, unless it is the first
};

// One worker's side of a run whose workers come and go. A worker has its number for good, while its
// rank may be another one in each group. One thread uses an object. Destroying it means that the
// worker leaves: nobody waits for it any longer.
class Members {
 public:
  virtual ~Members() = default;

  virtual int number() const noexcept = 0;

  // Whether it came when the run had begun, and has been in no group yet.
  virtual bool is_newcomer() const noexcept = 0;

  // Its rank in the last group that meet made; -1 before the first.
  virtual int rank() const noexcept = 0;

  // Makes a group of all workers that are left, on all of which somebody calls it: at first, when
  // an error of the last group says that a worker is lost, or at a point of the run where all are.
  // With `admit` on all of them, newcomers are taken in. It waits for workers that are not known to
  // be lost, at most `patience` from the time at which the first one came, and goes on without
  // those that do not come; newcomers wait until they are taken in. The group is independent of
  // those before it: an abort there does not end it.
  //
  // The first group is of all workers that begin the run: if one of them leaves before, or does not
  // come in time, meet throws AgreedError on all, which names it. Throws SurvivedError on a worker
  // without which the others went on, or may have gone on, as it cannot know that it is not cut off
  // from them. Throws Error(kPeerLost) on a newcomer when nobody is left that could take it in, and
  // where those that are left did not come together: they may try again.
  virtual Meeting meet(std::chrono::milliseconds patience, bool admit) = 0;

  // Whether a newcomer waits; workers may get different answers.
  virtual bool somebody_waits() = 0;

  // Whether no other worker is left, as far as is known.
  virtual bool is_alone() = 0;

  // The worker that was `rank` in the group of `generation`; -1 if that is not known here.
  virtual int worker_of(uint32_t generation, int rank) const = 0;

  // The run has come to its end on this worker. Those that lost somebody in the last messages then
  // find it in meet.
  virtual void end() noexcept = 0;
};

class LocalMeeting;

// Where workers that are threads of this process meet. Any thread may use it; it may go before its
// members.
class MeetingPlace {
 public:
  // The first meeting waits for so many to enter.
  explicit MeetingPlace(int workers);

  // The side of a worker; of a newcomer, once as many have entered as begin the run.
  std::unique_ptr<Members> enter();

 private:
  std::shared_ptr<LocalMeeting> meeting_;
};

// The same for the processes of mpirun; numbers are ranks of its world. mpirun must be told to let
// the others go on when one fails (--enable-recovery), and nobody can join. Processes that an
// earlier run of this process lost are no members. Fails with kUnsupported in builds without MPI.
Result<std::unique_ptr<Members>> make_mpi_members();

}  // namespace thinwire
