// AccountRounds: the rounds, and what is learnt in them.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/faulty/account_rounds.h"

#include <algorithm>

#include "comm/sealed_words.h"
#include "exchange/step/message_tags.h"
#include "exchange/step/stopwatch.h"

namespace thinwire {
namespace {

constexpr size_t kHeader =
    2;  // words of a message before the accounts: step and round; a seal follows

}  // namespace

AccountRounds::AccountRounds(StepContext& context, Roster& roster)
    : context_(context),
      roster_(roster),
      ranks_(context.ranks()),
      rounds_(std::max<size_t>(2, roster.most() + 1)),
      outbox_(context.group, roster, rounds_),
      peers_(ranks_) {
  for (Peer& peer : peers_) peer.message.resize(kHeader + ranks_ * ranks_ + 1);
}

std::vector<Account> AccountRounds::call(std::span<const Account> mine) {
  accounts_.assign(ranks_ * ranks_, kNoAccount);
  std::copy(mine.begin(), mine.end(),
            accounts_.begin() + static_cast<std::ptrdiff_t>(context_.rank() * ranks_));
  fresh_.assign(ranks_, kNever);
  fresh_[context_.rank()] = 0;
  confirmed_ = ranks_ == 1;
  outbox_.set_under_way(true);
  for (size_t round = 0; round < rounds_; ++round) {
    send(round);
    wait_for_round(round);
  }
  outbox_.set_under_way(false);
  // A rank that came too late decides as the others do, who do not know its accounts.
  if (!confirmed_)
    std::fill_n(accounts_.begin() + static_cast<std::ptrdiff_t>(context_.rank() * ranks_), ranks_,
                kNoAccount);
  return accounts_;
}

void AccountRounds::send(size_t round) {
  std::vector<uint64_t> words = {context_.call.step, round};
  for (size_t of = 0; of < ranks_; ++of) {
    const auto row = std::span(accounts_).subspan(of * ranks_, ranks_);
    if (fresh_[of] == round)
      words.insert(words.end(), row.begin(), row.end());
    else
      words.insert(words.end(), ranks_, kNoAccount);
  }
  words.push_back(seal_of(words, context_.call.step, context_.group.rank()));
  const auto bytes = std::as_bytes(std::span(words));
  Buffer message = context_.buffers.take(bytes.size());
  std::copy(bytes.begin(), bytes.end(), message.bytes().begin());
  outbox_.send(std::move(message), bytes.size(), kAccountsTag);
}

void AccountRounds::wait_for_round(size_t round) {
  for (Peer& peer : peers_) peer.heard = false;
  const auto patience = context_.group.deadline() * static_cast<int>(round + 3) / 2;
  poll_until(Clock::now() + patience, [&] {
    bool all = true;
    for (size_t rank = 0; rank < ranks_; ++rank) {
      if (rank == context_.rank() || roster_.is_lost(rank) || peers_[rank].heard) continue;
      // As many as a rank may have left behind, so that one that sends without end does not hold
      // this rank here.
      for (size_t i = 0; i < PatientOutbox::kMostSteps * rounds_ && listen(rank, round); ++i)
        continue;
      all &= peers_[rank].heard || !roster_.awaits(rank);
    }
    outbox_.tidy(context_.buffers);
    return all;
  });
  for (size_t rank = 0; rank < ranks_; ++rank)
    if (roster_.awaits(rank) && !peers_[rank].heard) roster_.note_absence(rank);
}

// Whether there may be more from the rank.
bool AccountRounds::listen(size_t rank, size_t round) {
  Peer& peer = peers_[rank];
  if (peer.ahead) return look_at(rank, round);
  try {
    if (peer.transfer == nullptr)
      peer.transfer = context_.group.receive(std::as_writable_bytes(std::span(peer.message)),
                                             static_cast<int>(rank), kAccountsTag);
    if (!peer.transfer->done()) return false;
    peer.transfer.reset();
  } catch (const Error& error) {
    roster_.lose(rank, error);
    return false;
  }
  return look_at(rank, round);
}

// Messages of earlier rounds are passed over. A damaged one is taken for that of this round.
bool AccountRounds::look_at(size_t rank, size_t round) {
  Peer& peer = peers_[rank];
  const uint64_t step = peer.message[0], of_round = peer.message[1], now = context_.call.step;
  const auto words = std::span(peer.message).first(peer.message.size() - 1);
  peer.ahead = false;
  peer.heard = seal_of(words, step, static_cast<int>(rank)) != peer.message.back();
  if (peer.heard) return false;
  if (step < now || (step == now && of_round < round)) return true;
  peer.heard = true;  // a rank that is ahead has nothing to say in this round
  peer.ahead = step > now || of_round > round;
  if (!peer.ahead) learn(rank, round);
  return false;
}

void AccountRounds::learn(size_t rank, size_t round) {
  const auto theirs =
      std::span<const Account>(peers_[rank].message).subspan(kHeader, ranks_ * ranks_);
  for (size_t of = 0; of < ranks_; ++of)
    if ((round == 0) == (of == rank)) learn_row(of, theirs.subspan(of * ranks_, ranks_), round);
}

// Once two versions of a rank's accounts were seen, its row says kEquivocation and never changes
// again, whatever the order of messages.
void AccountRounds::learn_row(size_t of, std::span<const Account> row, size_t round) {
  if (row[of] == kNoAccount) return;
  const auto known = std::span(accounts_).subspan(of * ranks_, ranks_);
  confirmed_ |= of == context_.rank();
  if (std::equal(row.begin(), row.end(), known.begin())) return;
  if (known[of] == kNoAccount)
    std::copy(row.begin(), row.end(), known.begin());
  else
    std::fill(known.begin(), known.end(), account_of_fault(LeftOutFor::kEquivocation));
  fresh_[of] = round + 1;
}

}  // namespace thinwire
