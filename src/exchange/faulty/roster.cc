// Roster: digests of what ranks sent, and what became of them.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/faulty/roster.h"

#include <algorithm>

#include "core/bytes.h"
#include "core/checksum.h"

namespace thinwire {

Roster::Roster(size_t ranks, size_t own, size_t most) : own_(own), most_(most), of_rank_(ranks) {}

void Roster::begin() {
  stopped_ = false;
  for (OfRank& rank : of_rank_) {
    rank.digest = 0;
    rank.absent = false;
    rank.fault = rank.lost ? account_of_fault(LeftOutFor::kSilence) : kNoAccount;
  }
}

bool Roster::awaits(size_t rank) const noexcept {
  const OfRank& it = of_rank_[rank];
  return rank != own_ && !it.lost && !it.absent &&
         it.fault != account_of_fault(LeftOutFor::kSilence);
}

bool Roster::awaits_values(size_t rank) const noexcept {
  return !stopped_ && awaits(rank) && of_rank_[rank].silent_steps < kPatientSteps;
}

// Sums do not depend on the order in which messages come.
void Roster::heard(size_t rank, int place, std::span<const std::byte> message) noexcept {
  of_rank_[rank].digest += checksum(byte_view(place), message);
}

void Roster::note(size_t rank, LeftOutFor why, size_t stream) noexcept {
  Account& fault = of_rank_[rank].fault;
  const Account noted = account_of_fault(why, stream);
  fault = fault == kNoAccount ? noted : std::min(fault, noted);
}

void Roster::lose(size_t rank, const Error& why) {
  if (of_rank_[rank].lost) return;
  of_rank_[rank].lost = true;
  of_rank_[rank].why = why.what();
  note(rank, LeftOutFor::kSilence);
  size_t lost = 0;
  std::string whom;
  for (size_t r = 0; r < of_rank_.size(); ++r) {
    if (!of_rank_[r].lost) continue;
    ++lost;
    whom += (whom.empty() ? "rank " : "; rank ") + std::to_string(r) + ": " + of_rank_[r].why;
  }
  if (lost > most_)
    throw Error(ErrorCode::kPeerLost, "exchange: " + std::to_string(lost) +
                                          " ranks are lost, and the rule goes on without " +
                                          std::to_string(most_) + " at most: " + whom);
}

std::vector<Account> Roster::accounts() const {
  std::vector<Account> all;
  for (const OfRank& rank : of_rank_)
    all.push_back(rank.fault != kNoAccount ? rank.fault : account_of_digest(rank.digest));
  return all;
}

void Roster::close(const Decision& decision) noexcept {
  for (size_t rank = 0; rank < of_rank_.size(); ++rank) {
    bool silent = false;
    for (const Decision::Entry& entry : decision.left_out)
      silent |= entry.left_out.rank == static_cast<int>(rank) &&
                entry.left_out.why == LeftOutFor::kSilence;
    of_rank_[rank].silent_steps = silent ? of_rank_[rank].silent_steps + 1 : 0;
  }
}

}  // namespace thinwire
