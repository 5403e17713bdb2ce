// Tests of sealed words that arrive, and of words that belong to something else.
// leader_tampering_test has damage on the way.
// SPDX-License-Identifier: Apache-2.0
#include "comm/sealed_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace thinwire {
namespace {

TEST(SealedWords, AreGatheredInRankOrderAndTheirMaximumIsKnownToAll) {
  for (int n = 1; n <= 9; ++n)
    run_local(n, [&](Group& group) {
      const auto word_of = [&](int rank) {
        return uint64_t{1} << 40 | static_cast<uint64_t>(rank * 5 % n);
      };
      std::vector<uint64_t> words;
      for (int rank = 0; rank < n; ++rank) words.push_back(word_of(rank));
      EXPECT_EQ(gather_sealed(group, word_of(group.rank()), 7), words);
      EXPECT_EQ(max_sealed(group, word_of(group.rank()), 7),
                *std::max_element(words.begin(), words.end()));
    });
}

TEST(SealedWords, AreRefusedWhenTheyAreAboutAnotherSubject) {
  for (const auto& talk : {+[](Group&group, uint64_t subject) { gather_sealed(group, 1, subject); },
                           +[](Group&group, uint64_t subject) { max_sealed(group, 1, subject); }})
    run_local(3, [&](Group& group) {
      try {
        talk(group, group.rank() == 2 ? 4 : 5);
        // Two hops of a maximum: rank 1 hears from rank 0 and then of rank 2, which has failed.
        FAIL() << "rank " << group.rank() << " took a word of another round";
      } catch (const Error& error) {
        if (group.rank() == 0) {
          EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
          EXPECT_THAT(error.what(), ::testing::HasSubstr("the word of rank 2 arrived corrupt"));
        }
      }
    });
}

}  // namespace
}  // namespace thinwire
