// The edit distance by which similar names are found.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/near_miss.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace thinwire {
namespace {

// Insertions, deletions, replacements, and swaps of neighbours, that make `b` of `a`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::exchange(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(std::string_view typed, std::span<const std::string> candidates) {
  std::string best;
  size_t least = 3;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(typed, candidate);
    if (distance < least && 3 * distance <= std::max(typed.size(), candidate.size())) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view typed, std::span<const std::string> candidates) {
  const std::string best = nearest(typed, candidates);
  return best.empty() ? "" : "; did you mean '" + best + "'?";
}

std::string known_names(std::string_view typed, std::span<const std::string> names) {
  std::string text = "known: ";
  for (const std::string& name : names) text += (&name == names.data() ? "" : ", ") + name;
  return text + did_you_mean(typed, names);
}

}  // namespace thinwire
