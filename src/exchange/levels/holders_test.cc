// Tests of who holds which tensor.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/levels/holders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exchange/testing/error_of.h"

namespace thinwire::testing {
namespace {

using ::testing::ElementsAre;

const std::vector<TensorSpec> kModel = {{"a", {10}, TensorKind::kLinear},
                                        {"b", {60}, TensorKind::kLinear},
                                        {"c", {30}, TensorKind::kLinear},
                                        {"d", {30}, TensorKind::kLinear},
                                        {"e", {0}, TensorKind::kLinear}};

Sections sections_of(const ExchangeOptions& options) {
  return resolve_sections(options, kModel, 0).value();
}

TEST(Holders, TheLargestGoFirstEachToWhoHasLeast) {
  const Sections sections = sections_of({.codec = "fp32"});
  EXPECT_THAT(choose_holders(sections, kModel, 1), ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT(choose_holders(sections, kModel, 2), ElementsAre(0, 0, 1, 1, 1));
  EXPECT_THAT(choose_holders(sections, kModel, 3), ElementsAre(1, 0, 1, 2, 2));
}

TEST(Holders, TensorsOfOneStreamHaveOneHolder) {
  const Sections whole = sections_of({.codec = "fp32", .grouping = Grouping::kModel});
  EXPECT_THAT(choose_holders(whole, kModel, 2), ElementsAre(0, 0, 0, 0, 0));
  const Sections two =
      sections_of({.codec = "fp32",
                   .grouping = Grouping::kModel,
                   .rules = {{.pattern = "[ac]", .codec = "topk", .grouping = Grouping::kModel}}});
  EXPECT_THAT(choose_holders(two, kModel, 2), ElementsAre(1, 0, 1, 0, 0));
  const std::vector<size_t> apart = choose_holders(sections_of({.codec = "fp32"}), kModel, 2);
  EXPECT_EQ(
      error_of([&] { check_holders(two, kModel, apart); }),
      "change: grouping \"model\" would make one stream of 'b' and 'd', which different ranks "
      "of a group hold; a new exchange can");
  check_holders(two, kModel, choose_holders(two, kModel, 2));
}

TEST(Holders, AHoldingHasItsTensorsAndTheirSections) {
  const Sections sections =
      sections_of({.codec = "fp32", .rules = {{.pattern = "c", .codec = "int8"}}});
  const std::vector<size_t> holder_of = {0, 0, 1, 1, 1};
  const Holding first = holding_of(0, holder_of, sections, kModel);
  EXPECT_THAT(first.tensors, ElementsAre(0, 1));
  EXPECT_THAT(first.section_ids, ElementsAre(0));
  const Holding second = holding_of(1, holder_of, sections, kModel);
  EXPECT_THAT(second.tensors, ElementsAre(2, 3, 4));
  EXPECT_EQ(second.specs[0].name, "c");
  EXPECT_THAT(second.section_ids, ElementsAre(0, 1));
  EXPECT_THAT(second.sections.of_tensor, ElementsAre(1, 0, 0));
  EXPECT_THAT(second.sections.used[0].tensors, ElementsAre(1, 2));
  EXPECT_THAT(second.sections.used[1].tensors, ElementsAre(0));
  EXPECT_THAT(second.sections.of_all.places, ElementsAre(0, 2, 3));
  EXPECT_EQ(second.sections.of_all.all, 5u);
}

TEST(Holders, GroupsMustMakeUpAllRanks) {
  check_groups(4, 12);
  EXPECT_EQ(
      error_of([] { check_groups(5, 12); }),
      "exchange: groups of inside = 5 ranks do not make up 12 ranks; choose one of 1, 2, 3, 4, "
      "6, 12");
}

}  // namespace
}  // namespace thinwire::testing
