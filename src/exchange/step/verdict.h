// Verdict and FaultLog: the worst fault of a step in one 64-bit word, on which ranks agree by a
// maximum.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "comm/sealed_words.h"
#include "thinwire/group.h"
#include "thinwire/status.h"

namespace thinwire {

// One fault; no fault when code is kOk, but a rank may have asked to skip the step.
struct Verdict {
  ErrorCode code = ErrorCode::kOk;
  size_t stream = 0;   // index in Exchange::streams
  int rank = -1;       // the culprit; -1: none alone
  bool asked = false;  // `rank` asked for it

  friend bool operator==(const Verdict&, const Verdict&) = default;
};

// The most ranks of a group; 0xFFFF stands for no rank in a verdict.
inline constexpr int kMostRanks = 65534;

// Throws Error(kContract), which begins with `origin`, for a group of more ranks: verdicts and
// frames have 16 bits for the number of one.
void check_rank_count(const Group& group, std::string_view origin);

// 0 for no fault. Of two faults the larger word wins: the larger code, then the first stream, then
// the lowest rank, so that every rank names the same culprit whatever it saw itself. Every fault
// wins over a rank that asked. REQUIRES: stream < 2^32, rank <= kMostRanks.
uint64_t pack(const Verdict& verdict) noexcept;
Verdict unpack_verdict(uint64_t word) noexcept;

// Collective: returns the largest word of all ranks, each of which gives its own. Each message has
// a checksum. Throws Error(kCorrupt), which names the sender of a damaged word, on the rank that
// received it.
uint64_t worst_of_all(Group& group, uint64_t mine, RankNumbers numbers = {});

// The verdict that ranks agreed on. Throws Error(kCorrupt), which begins with `origin`, if it names
// no fault, rank or stream that there is.
Verdict read_verdict(uint64_t word, int ranks, size_t streams, std::string_view origin);

// The worst fault seen in a step so far.
class FaultLog {
 public:
  void add(ErrorCode code, size_t stream, int rank) noexcept;
  void ask_to_skip(int rank) noexcept;
  void clear() noexcept { word_ = 0; }
  uint64_t word() const noexcept { return word_; }

 private:
  uint64_t word_ = 0;
};

}  // namespace thinwire
