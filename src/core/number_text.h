// Text of numbers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <string>

namespace thinwire {

// 0.25, 1e-05, 500: the shortest text that reads back as the same number.
inline std::string shortest(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

}  // namespace thinwire
