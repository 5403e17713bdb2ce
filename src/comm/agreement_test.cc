// Tests of agreement between ranks: equal texts pass, and every rank names the first difference.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace thinwire {
namespace {

using ::testing::HasSubstr;

// The message that each rank gets when rank r gives text_of(r); empty for none.
template <typename TextOf>
std::vector<std::string> outcomes(int ranks, const TextOf& text_of) {
  std::vector<std::string> messages(static_cast<size_t>(ranks));
  run_local(ranks, [&](Group& group) {
    try {
      require_agreement(group, "recipe", text_of(group.rank()));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMismatch);
      messages[static_cast<size_t>(group.rank())] = error.what();
    }
  });
  return messages;
}

TEST(Agreement, EqualTextsPass) {
  for (const int ranks : {1, 2, 5})
    for (const std::string& message : outcomes(ranks, [](int) { return "a 1\nb 2\n"; }))
      EXPECT_EQ(message, "");
  EXPECT_THAT(outcomes(3, [](int) { return ""; }), ::testing::Each(""));
}

TEST(Agreement, FirstDifferentLineIsNamedOnEveryRank) {
  const auto messages = outcomes(4, [](int rank) {
    return rank == 2 ? "codec topk\nseed 1\nx\n" : "codec topk\nseed 0\ny\n";
  });
  EXPECT_THAT(messages,
              ::testing::Each("recipe: ranks do not agree: line 2 is 'seed 1' on rank 2, 'seed 0' "
                              "on rank 0"));
}

TEST(Agreement, TheOddRankIsNamedEvenIfItIsTheFirst) {
  EXPECT_THAT(outcomes(3, [](int rank) { return rank == 0 ? "seed 1" : "seed 0"; }),
              ::testing::Each(HasSubstr("line 1 is 'seed 1' on rank 0, 'seed 0' on rank 1")));
}

TEST(Agreement, MissingLineIsNamed) {
  EXPECT_THAT(outcomes(2, [](int rank) { return rank == 1 ? "a\n" : "a\nb\n"; }),
              ::testing::Each(HasSubstr("line 2 is nothing more on rank 1, 'b' on rank 0")));
  EXPECT_THAT(outcomes(2, [](int rank) { return rank == 0 ? "" : "a\n"; }),
              ::testing::Each(HasSubstr("line 1 is 'a' on rank 1, nothing more on rank 0")));
}

TEST(Agreement, DifferenceOnlyInTheLastNewlineIsRefused) {
  EXPECT_THAT(outcomes(2, [](int rank) { return rank == 0 ? "a" : "a\n"; }),
              ::testing::Each(HasSubstr("do not agree")));
}

}  // namespace
}  // namespace thinwire
