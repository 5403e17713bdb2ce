// A text as sequences of tokens, each to be followed by the right one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "thinwire/torch.h"

namespace thinwire {

struct Text {
  torch::Tensor codes;   // int32: each token's place in the alphabet
  uint64_t train = 0;    // the first so many are to train on, the rest to test with
  int64_t alphabet = 0;  // distinct tokens
};

// Reads a text of single-byte characters, packed or not; codes are in their order, and nine tenths
// are to train on. Throws Error kIo, or kCorrupt when it has fewer than two distinct characters.
Text read_characters(const std::string& path);

// Reads two texts of words between blanks, with a token of its own at the end of each line. Codes
// are of the words of the first text, the more frequent first, of equally frequent ones in the
// order of their bytes; words that only the second has are "<unk>". Throws Error kIo, or kCorrupt
// when the first has fewer than two words or no "<unk>".
Text read_words(const std::string& train, const std::string& test);

// How many sequences a run of so many tokens holds: the last target is a token too.
constexpr uint64_t count_sequences(uint64_t tokens, int64_t sequence) {
  return tokens == 0 ? 0 : (tokens - 1) / static_cast<uint64_t>(sequence);
}

// Sample i is tokens i * sequence .. (i + 1) * sequence - 1 behind token `begin`, as int64 codes;
// its targets are the tokens that follow each. Samples do not overlap.
std::shared_ptr<const Dataset> make_text_set(std::shared_ptr<const Text> text, uint64_t begin,
                                             uint64_t count, int64_t sequence);

}  // namespace thinwire
