// Tests of which rank differs from most, and that none does if all are alike.
// SPDX-License-Identifier: Apache-2.0
#include "core/odd_one_out.h"

#include <gtest/gtest.h>

#include <string_view>

namespace thinwire {
namespace {

size_t odd(std::string_view all) {
  return odd_one_out(all.size(), [&](size_t a, size_t b) { return all[a] == all[b]; });
}

TEST(OddOneOut, IsWhoDiffersFromMost) {
  EXPECT_EQ(odd("baaa"), 0);
  EXPECT_EQ(odd("aabaa"), 2);
  EXPECT_EQ(odd("abcbb"), 0);
  EXPECT_EQ(odd("cabbb"), 0);
}

TEST(OddOneOut, TheFirstIsBelievedWhereNoMoreAreAlike) {
  EXPECT_EQ(odd("ab"), 1);
  EXPECT_EQ(odd("abc"), 1);
  EXPECT_EQ(odd("aabb"), 2);
}

TEST(OddOneOut, NobodyWhereAllAreAlike) {
  EXPECT_EQ(odd(""), 0);
  EXPECT_EQ(odd("a"), 1);
  EXPECT_EQ(odd("aaa"), 3);
}

}  // namespace
}  // namespace thinwire
