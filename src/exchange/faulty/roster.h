// Roster: which ranks this rank hears in a step, and which are lost for good.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exchange/faulty/account.h"
#include "thinwire/status.h"

namespace thinwire {

// Of exchanges that count ranks with missing or bad messages among the f that their rule tolerates.
// A step is begin, then heard, note and lose for the messages that come, then accounts, then close.
// One thread at a time.
class Roster {
 public:
  // A rank that was silent in so many steps in a row is not waited for any more. Until then a slow
  // rank may catch up: it waits for nobody, as the others wait for it.
  static constexpr int kPatientSteps = 3;

  // At most `most` ranks are faulty.
  Roster(size_t ranks, size_t own, size_t most);

  size_t most() const noexcept { return most_; }
  void begin();

  // Whether a step waits for the rank's contributions; and for its part in the agreement.
  bool awaits_values(size_t rank) const noexcept;
  bool awaits(size_t rank) const noexcept;
  void note_absence(size_t rank) noexcept { of_rank_[rank].absent = true; }  // from the agreement
  bool is_lost(size_t rank) const noexcept { return of_rank_[rank].lost; }

  // The deadline has passed: contributions that are not there are not waited for in this step.
  void stop_waiting() noexcept { stopped_ = true; }
  bool waits() const noexcept { return !stopped_; }

  // A message that is part of the rank's contributions, with its place among them; in any order.
  void heard(size_t rank, int place, std::span<const std::byte> message) noexcept;

  // Its contributions do not count in this step. Of several reasons silence is kept, else that of
  // the first stream, in whichever order messages come.
  void note(size_t rank, LeftOutFor why, size_t stream = 0) noexcept;

  // Nothing can be received from it, or sent to it, any more. Throws Error(kPeerLost) that names
  // them if more than `most` ranks are lost.
  void lose(size_t rank, const Error& why);

  // What this rank has to say of all.
  std::vector<Account> accounts() const;

  // The ranks came to `decision`.
  void close(const Decision& decision) noexcept;

 private:
  struct OfRank {
    uint64_t digest = 0;
    Account fault = kNoAccount;
    bool absent = false;
    bool lost = false;
    std::string why;       // it is
    int silent_steps = 0;  // in a row
  };

  const size_t own_, most_;
  bool stopped_ = false;
  std::vector<OfRank> of_rank_;
};

}  // namespace thinwire
