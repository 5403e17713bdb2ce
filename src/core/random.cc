// Philox4x32-10 from Random123, and the few distributions that thinwire draws from.
// SPDX-License-Identifier: Apache-2.0
#include "core/random.h"

#include <Random123/philox.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace thinwire {

PhiloxInput philox_input(const RandomKey& key, uint64_t block) noexcept {
  // The use goes into the key's high bits by exclusive or, so that seeds below 2^56 never collide.
  const uint64_t mixed = key.seed ^ (static_cast<uint64_t>(key.use) << 56);
  return {.key = {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)},
          .counter = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                      static_cast<uint32_t>(key.step),
                      (static_cast<uint32_t>(key.step >> 32) & 0xffffu) | (key.stream << 16)}};
}

std::array<uint32_t, 4> random_block(const RandomKey& key, uint64_t block) noexcept {
  const PhiloxInput input = philox_input(key, block);
  r123::Philox4x32 philox;
  const auto words = philox(r123::Philox4x32::ctr_type{{input.counter[0], input.counter[1],
                                                        input.counter[2], input.counter[3]}},
                            r123::Philox4x32::key_type{{input.key[0], input.key[1]}});
  return {words[0], words[1], words[2], words[3]};
}

uint32_t random_word(const RandomKey& key, uint64_t position) noexcept {
  return random_block(key, position / 4)[position % 4];
}

float random_unit(const RandomKey& key, uint64_t position) noexcept {
  return static_cast<float>(random_word(key, position) >> 8) * 0x1p-24f;
}

float random_normal(const RandomKey& key, uint64_t position) noexcept {
  const auto block = random_block(key, position / 2);
  const size_t at = position % 2 * 2;
  const double u = (static_cast<double>(block[at]) + 1) * 0x1p-32;  // (0, 1]
  const double v = static_cast<double>(block[at + 1]) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
}

uint64_t random_below(const RandomKey& key, uint64_t position, uint64_t bound) noexcept {
  const auto block = random_block(key, position / 2);
  const size_t at = position % 2 * 2;
  const uint64_t word = static_cast<uint64_t>(block[at]) << 32 | block[at + 1];
  return static_cast<uint64_t>(static_cast<unsigned __int128>(word) * bound >> 64);
}

std::vector<uint64_t> random_permutation(const RandomKey& key, uint64_t count) {
  std::vector<uint64_t> order(count);
  std::iota(order.begin(), order.end(), uint64_t{0});
  for (uint64_t left = count; left > 1; --left)
    std::swap(order[left - 1], order[random_below(key, left, left)]);
  return order;
}

}  // namespace thinwire
