// Finds the rank that differs where all should be alike.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace thinwire {

// The first of `count` that differs from what most are like, from the first where no more are like
// anything else; `count` when all are alike. `alike(a, b)` compares two of them.
template <typename Alike>
size_t odd_one_out(size_t count, const Alike& alike) {
  const auto first_unlike = [&](size_t one) {
    size_t other = 0;
    while (other < count && alike(one, other)) ++other;
    return other;
  };
  const size_t second = count == 0 ? 0 : first_unlike(0);
  if (second == count) return count;
  size_t most = 0, with = 0;
  for (size_t one = 0; one < count; ++one) {
    size_t like = 0;
    for (size_t other = 0; other < count; ++other) like += alike(one, other);
    if (like > with) with = like, most = one;
  }
  return most == 0 ? second : first_unlike(most);
}

}  // namespace thinwire
