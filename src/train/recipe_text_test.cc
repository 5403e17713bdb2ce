// Tests of recipes as text: lines to agree on, TOML with every key, and relevant differences.
// SPDX-License-Identifier: Apache-2.0
#include "train/recipe_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace thinwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Recipe recipe(std::vector<std::pair<std::string, std::string>> given) {
  return {.name = "try", .options = parse_options("test", recipe_keys(), given).value()};
}

TEST(RecipeText, AgreementLeavesOutWhatMayDiffer) {
  const std::string text = agreement_text(recipe({{"exchange.codec", "topk:density=0.1"}}));
  EXPECT_THAT(text, HasSubstr("\nexchange.codec=topk:density=0.1\n"));
  EXPECT_THAT(text, Not(HasSubstr("run.threads")));
  EXPECT_EQ(text, agreement_text(recipe({{"exchange.codec", "topk:density=0.1"},
                                         {"run.threads", "7"},
                                         {"train.batch", "64"}})));
}

TEST(RecipeText, AgreementReadsBack) {
  const Recipe given = recipe({{"exchange.codec", "topk:density=0.1"},
                               {"schedule.milestones", "80,120.5"},
                               {"data.wrong_labels", "0.05"}});
  const Options read = read_agreement("progress.json", agreement_text(given)).value();
  EXPECT_EQ(agreement_text({.name = "try", .options = read}), agreement_text(given));
  EXPECT_EQ(read_agreement("x", "train.batch=9\n").value().integer("train.batch"), 9);
  EXPECT_THAT(read_agreement("progress.json", "data.old=1\n").status().message(),
              HasSubstr("data.old"));
}

TEST(RecipeText, RulesOfSeveralLinesAreOneValue) {
  const auto rules = [](const std::string& density) {
    return recipe({{"exchange.rules", "{fc.*} int8\n{conv*} topk:density=" + density}});
  };
  const std::string text = agreement_text(rules("0.1"));
  EXPECT_EQ(read_agreement("progress.json", text).value().text("exchange.rules"),
            "{fc.*} int8 {conv*} topk:density=0.1");
  EXPECT_THAT(compare_recipes(text, agreement_text(rules("0.01"))).forbidden,
              ElementsAre(HasSubstr("exchange.rules")));
  // As earlier versions wrote it.
  std::string earlier = text;
  earlier.replace(earlier.find(" {conv*}"), 1, "\n");
  const RecipeChanges none = compare_recipes(earlier, text);
  EXPECT_THAT(none.forbidden, ElementsAre());
  EXPECT_THAT(none.allowed, ElementsAre());
}

// Optimisers have the state of a rank's parts. Checkpoints of before tensor parallelism had none.
TEST(RecipeText, ARunGoesOnWithItsOwnTensorParallelism) {
  const std::string alone = agreement_text(recipe({}));
  const std::string two = agreement_text(recipe({{"tensor.ranks", "2"}}));
  for (const auto& [before, now] : {std::pair(alone, two), std::pair(two, alone)})
    EXPECT_THAT(compare_recipes(before, now).forbidden, ElementsAre(HasSubstr("tensor.ranks: ")));
  std::string earlier;
  for (std::string_view left = alone; !left.empty(); left.remove_prefix(left.find('\n') + 1))
    if (!left.starts_with("tensor.")) earlier += left.substr(0, left.find('\n') + 1);
  EXPECT_LT(earlier.size(), alone.size());
  EXPECT_THAT(compare_recipes(earlier, alone).forbidden, ElementsAre());
  EXPECT_THAT(compare_recipes(earlier, alone).allowed, ElementsAre());
}

TEST(RecipeText, TomlHasEveryKeyInItsSection) {
  const std::string toml = recipe_toml(recipe({{"schedule.milestones", "80,120.5"},
                                               {"exchange.codec", "a\"b\\c\n"},
                                               {"train.epochs", "2"}}));
  EXPECT_THAT(toml, HasSubstr("\n[schedule]\nname = \"constant\"\nmilestones = [80, 120.5]\n"));
  EXPECT_THAT(toml, HasSubstr("codec = \"a\\\"b\\\\c\\u000a\"\n"));
  EXPECT_THAT(toml, HasSubstr("\n[train]\nepochs = 2\n"));
  EXPECT_THAT(toml, HasSubstr("nesterov = false\n"));
  EXPECT_THAT(recipe_toml(recipe({})), HasSubstr("milestones = []\n"));
}

TEST(RecipeText, TellsChangesThatMatterFromOthers) {
  const std::string before = agreement_text(recipe({}));
  const auto none = compare_recipes(before, before);
  EXPECT_THAT(none.forbidden, ElementsAre());
  EXPECT_THAT(none.allowed, ElementsAre());
  const auto some = compare_recipes(
      before, agreement_text(recipe(
                  {{"train.epochs", "9"}, {"model.name", "resnet20"}, {"train.batch", "128"}})));
  EXPECT_THAT(some.forbidden, ElementsAre("model.name: mlp before, resnet20 now",
                                          "train.batch: 64 before, 128 now"));
  EXPECT_THAT(some.allowed, ElementsAre("train.epochs: 1 before, 9 now"));
  EXPECT_THAT(compare_recipes("data.old=1\n", "data.new=\n").forbidden,
              ElementsAre("data.new: absent before,  now", "data.old: 1 before, absent now"));
  // Where momentum acts in a checkpoint that does not say.
  EXPECT_THAT(compare_recipes("", "exchange.momentum=optimizer\n").forbidden, ElementsAre());
  EXPECT_THAT(compare_recipes("", "exchange.momentum=auto\n").forbidden,
              ElementsAre("exchange.momentum: optimizer before, auto now"));
  // Where second moments stay as they are, and where momentum would act in another memory.
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  const auto changed = [](Pairs settings, const std::string& key, const std::string& was,
                          const std::string& is) {
    settings.emplace_back(key, was);
    const std::string earlier = agreement_text(recipe(settings));
    settings.back().second = is;
    return compare_recipes(earlier, agreement_text(recipe(settings))).forbidden;
  };
  for (const char* form : {"mean", "frozen"}) {
    const Pairs adam = {{"optimizer.name", "adam"}, {"optimizer.second_moment", form}};
    const size_t refused = std::string(form) == "frozen" ? 1 : 0;
    EXPECT_EQ(changed(adam, "optimizer.beta2", "0.999", "0.9").size(), refused);
    EXPECT_EQ(changed(adam, "optimizer.freeze_after", "0.5", "1").size(), refused);
    EXPECT_EQ(changed(adam, "optimizer.beta1", "0.9", "0.8").size(), 0u);
  }
  const Pairs sparse = {{"exchange.codec", "topk"}};
  EXPECT_THAT(changed(sparse, "optimizer.momentum", "0", "0.9"),
              ElementsAre("optimizer.momentum: 0 before, 0.9 now"));
  EXPECT_THAT(changed(sparse, "optimizer.momentum", "0.8", "0.9"), ElementsAre());
  EXPECT_THAT(changed(sparse, "optimizer.momentum", "0.9", "0"), ElementsAre());
  EXPECT_THAT(changed({{"exchange.codec", "fp32"}}, "optimizer.momentum", "0", "0.9"),
              ElementsAre());
  EXPECT_THAT(changed({{"exchange.codec", "topk"}, {"exchange.momentum", "optimizer"}},
                      "optimizer.momentum", "0", "0.9"),
              ElementsAre());
  // The same local method, written out or not.
  const auto method = [](const std::string& was, const std::string& is) {
    return compare_recipes("sync.method=" + was + "\n", "sync.method=" + is + "\n").forbidden;
  };
  EXPECT_THAT(method("streaming:tau=6", "streaming:delay=0,tau=6"), ElementsAre());
  EXPECT_THAT(method("streaming:tau=6", "streaming:tau=8"),
              ElementsAre("sync.method: streaming:tau=6 before, streaming:tau=8 now"));
  // A memory that the method never had.
  const auto memory = [](const std::string& with) {
    return compare_recipes("exchange.feedback=dgc\n" + with, "exchange.feedback=auto\n" + with);
  };
  EXPECT_THAT(memory("sync.method=leader\n").forbidden, ElementsAre());
  EXPECT_THAT(memory("sync.method=leader\n").allowed,
              ElementsAre("exchange.feedback: dgc before, auto now"));
  for (const char* with : {"", "sync.method=\n", "sync.method=average\n"})
    EXPECT_THAT(memory(with).forbidden, ElementsAre("exchange.feedback: dgc before, auto now"));
  // And what there was not.
  const auto newer = compare_recipes(
      "",
      "exchange.combine=mean\nexchange.flush=off\nexchange.inside=1\nexchange.rules=\n"
      "pipeline.autoencoder=none\n");
  EXPECT_THAT(newer.forbidden, ElementsAre());
  EXPECT_THAT(newer.allowed, ElementsAre());
  EXPECT_THAT(compare_recipes("", "exchange.inside=2\n").allowed,
              ElementsAre("exchange.inside: 1 before, 2 now"));
}

}  // namespace
}  // namespace thinwire
