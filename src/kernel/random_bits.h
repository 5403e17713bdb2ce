// Random bits for many positions at once: the words of core/random.h in vectors. Bit-identical on
// every SIMD target.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/random.h"

namespace thinwire::kernel {

// What position p of a sequence draws: sixteen bits, half p mod 2 (0: the lower) of
// random_word(key, p / 2). Half a word is enough to round by, and costs half of the time: ten
// rounds of Philox are most of what a stochastic codec does.
inline uint16_t random_half(const RandomKey& key, uint64_t position) noexcept {
  return static_cast<uint16_t>(random_word(key, position / 2) >> position % 2 * 16);
}

// halves[i] = random_half(key, position + i).
void random_halves(const RandomKey& key, uint64_t position, std::span<uint16_t> halves) noexcept;

}  // namespace thinwire::kernel
