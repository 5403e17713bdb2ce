// Numbers on which ranks decide, with checksums: a damaged one is an error, not another decision.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "thinwire/group.h"

namespace thinwire {

// One word, sealed by its sender; and what it says, or Error(kCorrupt) that names the sender.
struct SealedWord {
  uint64_t word = 0;
  uint64_t seal = 0;
};
SealedWord seal_word(uint64_t word, uint64_t subject, int sender);
uint64_t open_word(const SealedWord& got, uint64_t subject, int sender);

// The seal of several words that one rank sends in one message.
uint64_t seal_of(std::span<const uint64_t> words, uint64_t subject, int sender);

// What errors call the ranks of a group that is part of another: rank r is rank first + r x stride.
struct RankNumbers {
  int first = 0, stride = 1;

  int of(int rank) const noexcept { return first + rank * stride; }
};

// Collective, as Group::all_gather and Group::max are. Each message is the word and the XXH3 of
// word, `subject`, sender and place, 16 bytes. `subject` says what the words are about, such as the
// number of a round: a word that was sent about another subject, by another rank or for another hop
// is damaged too. Throws Error(kCorrupt) that names the sender of a damaged word. The rank that
// throws can take part no more, so that the others must be told.
std::vector<uint64_t> gather_sealed(Group& group, uint64_t mine, uint64_t subject);
uint64_t max_sealed(Group& group, uint64_t mine, uint64_t subject, RankNumbers numbers = {});

}  // namespace thinwire
