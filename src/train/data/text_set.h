// A text as sequences of characters, each to be followed by the right one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "thinwire/torch.h"

namespace thinwire {

struct Text {
  std::string alphabet;  // its distinct characters, by code
  torch::Tensor codes;   // uint8: each character's place in the alphabet
};

// Reads a text of single-byte characters, packed or not. Throws Error kIo, or kCorrupt when it has
// fewer than two distinct characters.
Text read_text(const std::string& path);

// How many sequences a run of so many characters holds: the last target is a character too.
constexpr uint64_t count_sequences(uint64_t characters, int64_t sequence) {
  return characters == 0 ? 0 : (characters - 1) / static_cast<uint64_t>(sequence);
}

// Sample i is characters i * sequence .. (i + 1) * sequence - 1 behind character `begin`, as int64
// codes; its targets are the characters that follow each. Samples do not overlap.
std::shared_ptr<const Dataset> make_text_set(std::shared_ptr<const Text> text, uint64_t begin,
                                             uint64_t count, int64_t sequence);

}  // namespace thinwire
