// Whether bytes are UTF-8, as readers of names demand.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace thinwire {

// No overlong forms, no surrogates, nothing above U+10FFFF [RFC 3629].
inline bool is_utf8(std::string_view text) noexcept {
  constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<uint8_t>(text[i++]);
    const size_t more = first < 0x80         ? 0
                        : first >> 5 == 0x06 ? 1
                        : first >> 4 == 0x0E ? 2
                        : first >> 3 == 0x1E ? 3
                                             : text.size();
    if (more > text.size() - i) return false;
    uint32_t point = more == 0 ? first : first & (0x3Fu >> more);
    for (size_t k = 0; k < more; ++k) {
      const auto next = static_cast<uint8_t>(text[i++]);
      if (next >> 6 != 0x02) return false;
      point = point << 6 | (next & 0x3Fu);
    }
    if (point < kLeast[more] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
      return false;
  }
  return true;
}

}  // namespace thinwire
