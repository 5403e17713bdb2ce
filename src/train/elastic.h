// Elastic: what a run whose workers come and go needs beside a group: who they are, and what became
// of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/members.h"
#include "thinwire/options.h"
#include "thinwire/synchroniser.h"
#include "train/current_group.h"

namespace thinwire {

// Of one rank.
class Elastic {
 public:
  Elastic(Members& members, const Options& recipe);

  // The group of the last meeting, behind a reference that stays.
  Group& group() noexcept { return group_; }

  // Makes the next group. False if the run has ended on another worker.
  bool meet(bool admit);

  // Whether `error` says that another rank is lost, so that the others may go on.
  static bool is_loss(const Error& error);

  Members& members() noexcept { return members_; }
  uint32_t generation() const noexcept { return generation_; }
  const std::vector<int>& workers() const noexcept { return workers_; }  // of the group, by rank

  // Workers of the group that came when the run had begun, until note_joined: groups may fail
  // before they have what they need.
  const std::vector<int>& newcomers() const noexcept { return newcomers_; }
  void note_joined() noexcept { newcomers_.clear(); }
  bool is_newcomer() const noexcept;  // this worker

  // Of those that an exchange reports, the ones that were not given before: by number of worker.
  std::vector<LostWorker> new_losses(const std::vector<LostRank>& lost, const std::string& why);

  // Those that were given, each as generation and rank, for a worker that joins.
  std::vector<int> reported() const;
  void take_reported(const std::vector<int>& reported);

 private:
  Members& members_;
  const std::chrono::milliseconds patience_;
  CurrentGroup group_;
  uint32_t generation_ = 0;
  std::vector<int> workers_, newcomers_;
  std::set<std::pair<uint32_t, int>> reported_;  // by generation and rank
};

}  // namespace thinwire
