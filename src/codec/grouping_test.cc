// The names of groupings, and the error about one that there is not.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/grouping.h"

#include <gmock/gmock.h>

namespace thinwire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(GroupingNames, EveryChoiceIsParsedAndNamesItself) {
  const auto choices = grouping_choices();
  ASSERT_EQ(choices.size(), 4u);
  for (const std::string_view choice : choices) {
    auto grouping = parse_grouping(choice);
    ASSERT_TRUE(grouping) << choice;
    if (choice == "auto")
      EXPECT_FALSE(grouping.value());
    else
      EXPECT_EQ(to_string(*grouping.value()), choice);
  }
}

TEST(GroupingNames, AnUnknownOneIsToldTheChoices) {
  const auto wrong = parse_grouping("globl");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.status().code(), ErrorCode::kUnknownName);
  EXPECT_THAT(wrong.status().message(),
              AllOf(HasSubstr("'globl'"), HasSubstr("auto, tensor, model, global"),
                    HasSubstr("did you mean 'global'")));
}

}  // namespace
}  // namespace thinwire
