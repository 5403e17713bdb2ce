// The names of tests that have a spec such as "topk:density=0.1" as their parameter.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace thinwire {

// `text`, with '_' in the place of what GoogleTest does not allow in a name.
inline std::string test_name(std::string_view text) {
  std::string name(text);
  for (char& c : name) {
    const bool allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!allowed) c = '_';
  }
  return name;
}

}  // namespace thinwire
