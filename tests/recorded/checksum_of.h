// How recorded tables condense bits: checksums that go on, and their text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "core/checksum.h"
#include "thinwire/state.h"

namespace thinwire::testing {

inline std::string hex(uint64_t word) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(word));
  return text;
}

// `word` stands for all bytes so far, `bytes` included.
inline void mix(uint64_t& word, std::span<const std::byte> bytes) {
  word = checksum(std::as_bytes(std::span(&word, 1)), bytes);
}

inline uint64_t checksum_of(const StateArrays& arrays) {
  uint64_t word = 0;
  for (const StateArray& array : arrays) {
    if (is_seal(array)) continue;  // says nothing that the others do not
    mix(word, std::as_bytes(std::span(array.name)));
    mix(word, std::as_bytes(std::span(array.shape)));
    mix(word, array.data);
  }
  return word;
}

}  // namespace thinwire::testing
