// fits_pattern: matches names of tensors with patterns.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "thinwire/tensor_rule.h"

namespace thinwire {
namespace {

// Where the set that begins with the '[' at `open` ends: at its ']', which may not be the first
// character in it. npos: the '[' stands for itself.
size_t end_of_set(std::string_view pattern, size_t open) {
  size_t first = open + 1;
  if (first < pattern.size() && pattern[first] == '!') ++first;
  return pattern.find(']', first + 1);
}

// `set` is what lies between the brackets.
bool is_in_set(char c, std::string_view set) {
  const auto byte = [](char one) { return static_cast<unsigned char>(one); };
  const bool others = set.starts_with('!');
  if (others) set.remove_prefix(1);
  bool found = false;
  while (!set.empty()) {
    const bool range = set.size() > 2 && set[1] == '-';
    const char last = range ? set[2] : set[0];
    found |= byte(set[0]) <= byte(c) && byte(c) <= byte(last);
    set.remove_prefix(range ? 3 : 1);
  }
  return found != others;
}

// Whether the element at `at`, which is no '*', stands for `c`; `next` is where the one behind it
// begins.
bool stands_for(std::string_view pattern, size_t at, char c, size_t& next) {
  next = at + 1;
  if (pattern[at] == '?') return true;
  if (pattern[at] != '[') return pattern[at] == c;
  const size_t end = end_of_set(pattern, at);
  if (end == std::string_view::npos) return c == '[';
  next = end + 1;
  return is_in_set(c, pattern.substr(at + 1, end - at - 1));
}

}  // namespace

// After a mismatch the last '*' takes one character more; those before it need not be tried again.
bool fits_pattern(std::string_view name, std::string_view pattern) noexcept {
  constexpr size_t kNone = std::string_view::npos;
  size_t at = 0, element = 0, star = kNone, taken = 0;
  while (at < name.size()) {
    size_t next = 0;
    if (element < pattern.size() && pattern[element] == '*') {
      star = element++;
      taken = at;
    } else if (element < pattern.size() && stands_for(pattern, element, name[at], next)) {
      element = next;
      ++at;
    } else if (star != kNone) {
      element = star + 1;
      at = ++taken;
    } else {
      return false;
    }
  }
  const auto rest = pattern.substr(element);
  return std::all_of(rest.begin(), rest.end(), [](char c) { return c == '*'; });
}

}  // namespace thinwire
