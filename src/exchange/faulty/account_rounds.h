// AccountRounds: all ranks come to the same accounts of a step, although some are silent, slow or
// faulty.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "exchange/faulty/account.h"
#include "exchange/faulty/patient_outbox.h"
#include "exchange/faulty/roster.h"
#include "exchange/step/step_context.h"

namespace thinwire {

// The agreement at the end of a step in which up to f ranks are faulty. After f + 1 rounds, and at
// least 2, all ranks know the same accounts. In the first round every rank sends its own accounts
// to every other one. In each later round it sends the accounts that it learnt in the round before
// [the relays of Dolev and Strong, SIAM J. Comput. 1983, without signatures]. Among f + 1 rounds
// there is one in which no rank fails, and after which all know the same. An account that a rank
// brings later than in the first round is not taken, because those that hear of it in the last
// round could not pass it on. A rank whose own accounts differ from one rank to another is found,
// too.
//
// There is no protection from a rank that forges the accounts of others: accounts are sealed with a
// checksum, and not signed.
//
// A message has 8 (n^2 + 3) bytes. Ranks that lag behind find the messages of earlier steps before
// them and read them in order. A rank waits longer in each round than in the one before: others may
// have spent their patience there. One thread at a time.
class AccountRounds {
 public:
  AccountRounds(StepContext& context, Roster& roster);

  // accounts[j * n + s]: what rank j says of rank s; those of a rank are kNoAccount if they are not
  // known. The same on all ranks. Returns after (f + 1) (f + 6) / 4 deadlines at most, for f >= 1;
  // ranks that it waited for in vain are noted as silent.
  std::vector<Account> call(std::span<const Account> mine);

 private:
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();

  struct Peer {
    std::vector<uint64_t> message;
    std::unique_ptr<Transfer> transfer;  // null: none is under way
    bool ahead = false;                  // the message is of a later round than the present one
    bool heard = false;                  // in the present round
  };

  void send(size_t round);
  bool listen(size_t rank, size_t round);
  bool look_at(size_t rank, size_t round);
  void learn(size_t rank, size_t round);
  void learn_row(size_t of, std::span<const Account> row, size_t round);
  void wait_for_round(size_t round);

  StepContext& context_;
  Roster& roster_;
  const size_t ranks_, rounds_;
  PatientOutbox outbox_;
  std::vector<Peer> peers_;  // by rank
  std::vector<Account> accounts_;
  std::vector<size_t> fresh_;  // by rank: the round in which its accounts are sent
  bool confirmed_ = false;     // others know this rank's accounts
};

}  // namespace thinwire
