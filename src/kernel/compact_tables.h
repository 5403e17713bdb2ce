// Tables that move the chosen bytes of eight to the front, for targets without AVX-512.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace thinwire::kernel {

using ByteTable = std::array<std::array<uint8_t, 8>, 256>;

// Row m holds the numbers of the bits that are set in m, rising, then zeros: indices for a shuffle.
inline constexpr ByteTable kSetBits = [] {
  ByteTable table{};
  for (unsigned m = 0; m < 256; ++m)
    for (unsigned bit = 0, k = 0; bit < 8; ++bit)
      if (m >> bit & 1) table[m][k++] = static_cast<uint8_t>(bit);
  return table;
}();

// Byte i of row m is i, plus 64 where bit i of m is set.
inline constexpr ByteTable kSignedIndex = [] {
  ByteTable table{};
  for (unsigned m = 0; m < 256; ++m)
    for (unsigned bit = 0; bit < 8; ++bit)
      table[m][bit] = static_cast<uint8_t>(bit + (m >> bit & 1) * 64);
  return table;
}();

}  // namespace thinwire::kernel
