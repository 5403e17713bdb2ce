// Tests of checkpoint.compress: what it may say, and which recipes may say it.
// SPDX-License-Identifier: Apache-2.0
#include "train/small_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "thinwire/trainer.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

std::string fault_of(const std::vector<std::pair<std::string, std::string>>& settings) {
  const auto options = parse_options("recipe", recipe_keys(), settings).value();
  for (const RecipeFault& fault : find_faults(options))
    if (fault.key == "checkpoint.compress") return fault.status.message();
  return "";
}

TEST(SmallOptions, ReadsWhatThereIs) {
  EXPECT_FALSE(parse_small_options("exact").value());
  const SmallOptions plain = *parse_small_options("quantised").value();
  EXPECT_EQ(plain.tolerance, SmallOptions{}.tolerance);
  EXPECT_EQ(plain.samples, SmallOptions{}.samples);
  EXPECT_EQ(plain.search_every, SmallOptions{}.search_every);
  EXPECT_EQ(plain.deltas, SmallOptions{}.deltas);
  EXPECT_EQ(plain.trials, SmallOptions{}.trials);
  EXPECT_EQ(plain.optimizer, SavedOptimizer::kExact);
  const SmallOptions all = *parse_small_options(
                                "quantised:tolerance=0.05,samples=0,search_every=2,deltas=0,"
                                "trials=7,optimizer=none")
                                .value();
  EXPECT_EQ(all.tolerance, 0.05);
  EXPECT_EQ(all.samples, 0u);
  EXPECT_EQ(all.search_every, 2u);
  EXPECT_EQ(all.deltas, 0u);
  EXPECT_EQ(all.trials, 7);
  EXPECT_EQ(all.optimizer, SavedOptimizer::kNone);
}

TEST(SmallOptions, MistakesAreNamedWithTheChoices) {
  const auto message = [](const char* text) {
    return parse_small_options(text).status().message();
  };
  EXPECT_THAT(message("quantized"), HasSubstr("quantised"));
  EXPECT_THAT(message("quantised:tolerance=-1"), HasSubstr("tolerance"));
  EXPECT_THAT(message("quantised:optimizer=some"), HasSubstr("half"));
  EXPECT_THAT(message("exact:tolerance=1"), HasSubstr("tolerance"));
}

TEST(SmallOptions, RecipesThatCannotHaveThemAreRefused) {
  EXPECT_EQ(fault_of({}), "");
  EXPECT_EQ(fault_of({{"checkpoint.compress", "quantised"}, {"data.hold_out", "100"}}), "");
  EXPECT_THAT(fault_of({{"checkpoint.compress", "quantised"}}), HasSubstr("data.hold_out"));
  EXPECT_THAT(fault_of({{"checkpoint.compress", "quantised"},
                        {"data.hold_out", "100"},
                        {"sync.method", "average"}}),
              HasSubstr("step by themselves"));
  const auto staged = [](const std::string& compress) {
    return fault_of(
        {{"checkpoint.compress", compress}, {"data.hold_out", "100"}, {"pipeline.stages", "2"}});
  };
  EXPECT_EQ(staged("quantised"), "");
  EXPECT_THAT(staged("quantised:optimizer=half"), HasSubstr("optimizer=exact"));
  EXPECT_THAT(staged("quantised:optimizer=none"), HasSubstr("optimizer=exact"));
  EXPECT_THAT(fault_of({{"checkpoint.compress", "small"}}), HasSubstr("exact"));
}

}  // namespace
}  // namespace thinwire
