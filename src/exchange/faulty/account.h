// Account: what a rank says of another rank's messages in a step, in one word; and what follows
// from all ranks' accounts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "thinwire/exchange.h"

namespace thinwire {

// 0: the account itself is not known. Else a digest of the messages, with the top bit set; or why
// they do not count, and the stream at which that was seen.
using Account = uint64_t;

inline constexpr Account kNoAccount = 0;

Account account_of_digest(uint64_t digest) noexcept;
Account account_of_fault(LeftOutFor why, size_t stream = 0) noexcept;

inline bool is_digest(Account account) noexcept { return (account >> 63) != 0; }
LeftOutFor fault_in(Account account) noexcept;  // REQUIRES: neither a digest nor kNoAccount
size_t stream_in(Account account) noexcept;     // likewise

// Who is left out of a step by a fault.
struct Decision {
  struct Entry {
    LeftOut left_out;
    size_t stream = 0;   // that was at fault, if one was
    bool proven = true;  // no f ranks that lie could have brought it about
  };
  std::vector<Entry> left_out;  // ascending ranks

  bool leaves_out(size_t rank) const noexcept;
  size_t proven() const noexcept;
};

// accounts[j * ranks + s] is what rank j says of rank s; accounts[s * ranks + s] what s says that
// it sent. At most `most` ranks are faulty. By this order:
//
//   1. no accounts of s are known: it was silent
//   2. s says itself that it has nothing to add, such as values that are not finite
//   3. s differs in its accounts of more others from what they say they sent than there can be
//      faulty ranks, those aside of whom more than `most` ranks say the same as s: no honest rank
//      can
//   4. any other rank's account of s is not what s says it sent: told another thing, if it has
//      another digest, else what the account says. Proven if more than `most` ranks say so; fewer
//      may be liars.
//
// The same accounts give the same decision.
Decision decide(std::span<const Account> accounts, size_t ranks, size_t most);

}  // namespace thinwire
