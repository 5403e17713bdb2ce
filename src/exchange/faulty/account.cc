// Accounts: reads all ranks' accounts, and finds whom they leave out.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/faulty/account.h"

#include <algorithm>
#include <optional>

namespace thinwire {
namespace {

constexpr Account kDigest = Account{1} << 63;

class Accounts {
 public:
  Accounts(std::span<const Account> words, size_t ranks, size_t most)
      : words_(words), ranks_(ranks), most_(most) {}

  std::optional<Decision::Entry> judge(size_t rank) const {
    const auto found = [&](LeftOutFor why, size_t stream = 0, bool proven = true) {
      return Decision::Entry{.left_out = {.rank = static_cast<int>(rank), .why = why},
                             .stream = stream,
                             .proven = proven};
    };
    const Account own = says(rank, rank);
    if (own == kNoAccount) return found(LeftOutFor::kSilence);
    if (!is_digest(own)) return found(fault_in(own), stream_in(own));
    if (accuses_too_many(rank)) return found(LeftOutFor::kDisagreement);
    Account worst = kNoAccount;  // a digest is the largest
    size_t accusers = 0;
    for (size_t by = 0; by < ranks_; ++by) {
      if (!contradicts(by, rank) || accuses_too_many(by)) continue;
      ++accusers;
      worst = std::max(worst, says(by, rank));
    }
    if (accusers == 0) return std::nullopt;
    if (is_digest(worst)) return found(LeftOutFor::kEquivocation, 0, accusers > most_);
    return found(fault_in(worst), stream_in(worst), accusers > most_);
  }

 private:
  Account says(size_t by, size_t of) const { return words_[by * ranks_ + of]; }

  // Rank `by` received something else from `of` than `of` says it sent.
  bool contradicts(size_t by, size_t of) const {
    return is_digest(says(of, of)) && says(by, of) != kNoAccount && says(by, of) != says(of, of);
  }

  // Whether `rank` contradicts more ranks than can be faulty. A rank that more than `most` ranks
  // contradict is certainly faulty: it does not count as an accusation by `rank`, and one fewer of
  // the others can be faulty. An honest rank contradicts only faulty ones.
  bool accuses_too_many(size_t rank) const {
    size_t accused = 0, known = 0;
    for (size_t of = 0; of < ranks_; ++of) {
      size_t accusers = 0;
      for (size_t by = 0; by < ranks_; ++by) accusers += contradicts(by, of);
      known += accusers > most_;
      accused += accusers <= most_ && contradicts(rank, of);
    }
    return accused > most_ - std::min(most_, known);
  }

  const std::span<const Account> words_;
  const size_t ranks_, most_;
};

}  // namespace

Account account_of_digest(uint64_t digest) noexcept { return digest | kDigest; }

Account account_of_fault(LeftOutFor why, size_t stream) noexcept {
  return (static_cast<Account>(stream) << 8) + static_cast<uint8_t>(why) + 1;
}

LeftOutFor fault_in(Account account) noexcept {
  const int why = static_cast<uint8_t>(account) - 1;
  const bool known = why >= 0 && why <= static_cast<int>(LeftOutFor::kEquivocation);
  return known ? static_cast<LeftOutFor>(why) : LeftOutFor::kCorruption;
}

size_t stream_in(Account account) noexcept { return account >> 8 & 0xFFFF'FFFF; }

bool Decision::leaves_out(size_t rank) const noexcept {
  return std::any_of(left_out.begin(), left_out.end(), [&](const Entry& entry) {
    return entry.left_out.rank == static_cast<int>(rank);
  });
}

size_t Decision::proven() const noexcept {
  return static_cast<size_t>(
      std::count_if(left_out.begin(), left_out.end(), [](const Entry& e) { return e.proven; }));
}

Decision decide(std::span<const Account> accounts, size_t ranks, size_t most) {
  const Accounts all(accounts, ranks, most);
  Decision decision;
  for (size_t rank = 0; rank < ranks; ++rank)
    if (const auto entry = all.judge(rank)) decision.left_out.push_back(*entry);
  return decision;
}

}  // namespace thinwire
