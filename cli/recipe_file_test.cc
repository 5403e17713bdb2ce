// Tests of recipe files: every kind of mistake is named with its place, its key and the choices.
// SPDX-License-Identifier: Apache-2.0
#include "cli/recipe_file.h"

#include <gmock/gmock.h>

#include <fstream>

#include "cli/text.h"

namespace thinwire::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<OptionInfo>& keys() {
  static const std::vector<OptionInfo> rows = {
      {.name = "model.name",
       .type = OptionType::kChoice,
       .fallback = "mlp",
       .choices = {"mlp", "resnet20"}},
      {.name = "train.epochs", .type = OptionType::kNumber, .fallback = "1", .min = 0},
      {.name = "train.batch",
       .type = OptionType::kInteger,
       .fallback = "64",
       .min = 1,
       .max = 9000},
      {.name = "train.nesterov", .type = OptionType::kFlag, .fallback = "false"},
      {.name = "schedule.milestones", .type = OptionType::kNumbers, .fallback = ""},
      {.name = "exchange.codec", .type = OptionType::kText, .fallback = "fp32"},
      {.name = "exchange.feedback", .type = OptionType::kText, .fallback = "auto"},
      {.name = "exchange.rules", .type = OptionType::kText, .fallback = ""},
  };
  return rows;
}

std::string complaint(std::string_view toml) {
  return parse_recipe(toml, "a.toml", keys()).status().message();
}

TEST(RecipeFile, ReadsEveryType) {
  auto settings = parse_recipe(
      "# comment\n"
      "[train]\n"
      "epochs = 2\n"
      "batch = 128\n"
      "nesterov = true\n"
      "[schedule]\n"
      "milestones = [80, 120.5]\n"
      "[exchange]\n"
      "codec = \"fp16\"\n",
      "a.toml", keys());
  auto recipe = make_recipe("a", settings, keys()).value();
  EXPECT_EQ(recipe.name, "a");
  EXPECT_EQ(recipe.options.number("train.epochs"), 2);
  EXPECT_EQ(recipe.options.integer("train.batch"), 128);
  EXPECT_TRUE(recipe.options.flag("train.nesterov"));
  EXPECT_THAT(recipe.options.numbers("schedule.milestones"), ElementsAre(80, 120.5));
  EXPECT_EQ(recipe.options.text("exchange.codec"), "fp16");
  EXPECT_EQ(recipe.options.text("model.name"), "mlp");
}

TEST(RecipeFile, RulesAreTablesOrOneText) {
  const auto rules = [](std::string_view toml) {
    return make_recipe("a", parse_recipe(toml, "a.toml", keys()), keys())
        .value()
        .options.text("exchange.rules");
  };
  const std::string text =
      "{*.bias} fp32 {head.*} topk:density=0.1 {feedback} ef21 {method} gather";
  EXPECT_EQ(rules(R"([[exchange.rules]]
                     codec = "fp32"
                     pattern = "*.bias"
                     [[exchange.rules]]
                     pattern = "head.*"
                     codec = "topk:density=0.1"
                     method = "gather"
                     feedback = "ef21")"),
            text);
  EXPECT_EQ(rules("exchange.rules = '" + text + "'"), text);
  EXPECT_THAT(complaint("[[exchange.rules]]\npattern = 'a'\ncodex = 'fp32'"),
              AllOf(HasSubstr("a.toml:1: exchange.rules: unknown key 'codex'"),
                    HasSubstr("did you mean 'codec'?")));
  EXPECT_THAT(complaint("[[exchange.rules]]\npattern = 'a'"), HasSubstr("a rule has no codec"));
  EXPECT_THAT(complaint("[[exchange.rules]]\npattern = 3\ncodec = 'fp32'"),
              HasSubstr("'pattern' is the number 3, but must be text"));
}

TEST(RecipeFile, NumbersSurviveToTheLastBit) {
  auto settings = parse_recipe("[train]\nepochs = 0.1234567890123456789", "a.toml", keys());
  auto recipe = make_recipe("a", settings, keys()).value();
  EXPECT_EQ(recipe.options.number("train.epochs"), 0.1234567890123456789);
}

TEST(RecipeFile, NamesLineOfBadSyntax) {
  EXPECT_THAT(complaint("[train]\nepochs = 3\nbatch = = 4\n"),
              StartsWith("a.toml:3: not valid TOML: "));
  EXPECT_THAT(complaint("[train]\nepochs = 1\nepochs = 2\n"), StartsWith("a.toml:"));
}

TEST(RecipeFile, NamesUnknownKeysAndSections) {
  EXPECT_EQ(complaint("[train]\n\nepoch = 3\n"),
            "a.toml:3: unknown key 'train.epoch'; did you mean 'train.epochs'? "
            "(keys of train: epochs, batch, nesterov)");
  EXPECT_EQ(complaint("[trian]\nepochs = 3\n"),
            "a.toml:1: unknown section 'trian'; did you mean 'train'? "
            "(sections: model, train, schedule, exchange)");
  EXPECT_EQ(complaint("[trian]\n"), complaint("[trian]\nepochs = 3\n"));
  EXPECT_EQ(complaint("epochs = 3\n"),
            "a.toml:1: unknown key 'epochs'; did you mean 'train.epochs'?");
  EXPECT_THAT(complaint("[train.inner]\nepochs = 3\n"),
              StartsWith("a.toml:2: unknown key 'train.inner.epochs'"));
}

TEST(RecipeFile, NamesWrongTypes) {
  EXPECT_EQ(complaint("[train]\nbatch = \"64\""),
            "a.toml:2: 'train.batch' is the text \"64\", but must be a whole number");
  EXPECT_EQ(complaint("[train]\nepochs = true"),
            "a.toml:2: 'train.epochs' is true, but must be a number");
  EXPECT_EQ(
      complaint("[train]\nnesterov = 1"),
      "a.toml:2: 'train.nesterov' is the number 1, but must be true or false, without quotes");
  EXPECT_EQ(complaint("[exchange]\ncodec = 16"),
            "a.toml:2: 'exchange.codec' is the number 16, but must be text in quotes");
  EXPECT_EQ(complaint("[schedule]\nmilestones = [80, \"x\"]"),
            "a.toml:2: 'schedule.milestones' is a list, but must be a list of numbers, as in "
            "[80, 120]");
  EXPECT_EQ(complaint("[train]\nepochs = 2020-01-01"),
            "a.toml:2: 'train.epochs' is a date or time, but must be a number");
}

TEST(RecipeFile, NamesImpossibleValues) {
  EXPECT_EQ(complaint("[train]\nbatch = 0"),
            "a.toml:2: option 'train.batch' is '0', but must be a whole number from 1 to 9000");
  EXPECT_THAT(complaint("[train]\nbatch = 1.5"), HasSubstr("must be a whole number"));
  EXPECT_THAT(complaint("[train]\nepochs = inf"), HasSubstr("must be a number"));
  EXPECT_EQ(complaint("[model]\nname = \"resnet2\""),
            "a.toml:2: option 'model.name' is 'resnet2', but must be one of: mlp, resnet20; did "
            "you mean 'resnet20'?");
}

TEST(RecipeFile, ChecksCodecAndFeedback) {
  EXPECT_THAT(complaint("[exchange]\ncodec = \"fp61\""),
              StartsWith("a.toml:2: unknown codec 'fp61'; known: "));
  EXPECT_THAT(complaint("[exchange]\ncodec = \"fp61\""), HasSubstr("did you mean 'fp16'?"));
  EXPECT_THAT(complaint("[exchange]\ncodec = \"fp16:x=1\""),
              StartsWith("a.toml:2: codec 'fp16': unknown option 'x'"));
  EXPECT_THAT(complaint("[exchange]\nfeedback = \"some\""),
              StartsWith("a.toml:2: unknown feedback 'some'"));
  EXPECT_EQ(complaint("[exchange]\nfeedback = \"residual\""), "");
}

TEST(RecipeFile, NamesAllMistakesInTheOrderOfTheFile) {
  const auto lines = split(complaint("[exchange]\n"
                                     "codec = \"fp61\"\n"
                                     "[train]\n"
                                     "epoch = 3\n"
                                     "batch = 0\n"
                                     "nesterov = true\n"
                                     "[modle]\n"
                                     "name = \"mlp\"\n"
                                     "[model]\n"
                                     "name = 3\n"),
                           '\n');
  EXPECT_THAT(lines, ElementsAre(StartsWith("a.toml:2: unknown codec 'fp61'"),
                                 StartsWith("a.toml:4: unknown key 'train.epoch'"),
                                 StartsWith("a.toml:5: option 'train.batch' is '0'"),
                                 StartsWith("a.toml:7: unknown section 'modle'"),
                                 StartsWith("a.toml:10: 'model.name' is the number 3")));
}

TEST(RecipeFile, NamesTheMistakesOfFileArgumentsAndKeysTogether) {
  const auto said = [](std::string_view toml, const std::vector<std::string>& sets) {
    Written written = parse_recipe(toml, "a.toml", recipe_keys());
    written.add(parse_sets(sets, recipe_keys()));
    return split(make_recipe("a", written, recipe_keys(), find_faults).status().message(), '\n');
  };
  EXPECT_THAT(said("[data]\naugment = true\nsequence = 9\n[model]\nembedding = 3\n",
                   {"optimizer.nesterov=true", "train.epochs=many", "exchange.codec"}),
              ElementsAre(StartsWith("--set train.epochs=many: option 'train.epochs'"),
                          StartsWith("--set exchange.codec: write it as"),
                          StartsWith("a.toml:2: 'data.augment': "),
                          StartsWith("a.toml:3: 'data.sequence': "),
                          StartsWith("a.toml:5: 'model.embedding': "),
                          StartsWith("--set optimizer.nesterov=true: 'optimizer.nesterov': ")));
  EXPECT_THAT(said("[pipeline]\nstages = 2\nforward = \"fp17\"\nwarmup = 1\nwarmup_steps = 9\n"
                   "backward_memory = \"aqsgd\"\n",
                   {}),
              ElementsAre(StartsWith("a.toml:3: 'pipeline.forward': "),
                          StartsWith("a.toml:5: 'pipeline.warmup_steps': "),
                          StartsWith("a.toml:6: 'pipeline.backward_memory': aqsgd")));
}

// Which data set was meant is not known, so nothing is said about what it has; nor about anything
// where the section is not known.
TEST(RecipeFile, KeysOfASectionWithAMistakeAreNotJudgedTogether) {
  const auto said = [](std::string_view toml) {
    return split(
        make_recipe("a", parse_recipe(toml, "a.toml", recipe_keys()), recipe_keys(), find_faults)
            .status()
            .message(),
        '\n');
  };
  EXPECT_THAT(said("[data]\nname = \"cifar\"\naugment = true\n[model]\nembedding = 3\n"),
              ElementsAre(StartsWith("a.toml:2: option 'data.name'"),
                          StartsWith("a.toml:5: 'model.embedding': ")));
  EXPECT_THAT(said("[dat]\nname = \"cifar10\"\n[data]\naugment = true\n"),
              ElementsAre(StartsWith("a.toml:1: unknown section 'dat'")));
}

TEST(RecipeFile, SetOverridesAndComplainsAsSet) {
  auto file = parse_recipe("[train]\nbatch = 32\n", "a.toml", keys());
  const std::string sets[] = {"train.batch=48", "train.batch=96"};
  file.add(parse_sets(sets, keys()));
  EXPECT_EQ(make_recipe("a", file, keys()).value().options.integer("train.batch"), 96);

  const auto said = [](std::string_view set) { return parse_set(set, keys()).status().message(); };
  EXPECT_EQ(said("train.batch"), "--set train.batch: write it as section.key=value");
  EXPECT_EQ(said("=3"), "--set =3: write it as section.key=value");
  EXPECT_THAT(said("train.bacth=3"), HasSubstr("--set train.bacth=3: unknown key 'train.bacth'; "
                                               "did you mean 'train.batch'?"));
  EXPECT_THAT(said("train.batch=many"), HasSubstr("--set train.batch=many: option 'train.batch'"));
}

TEST(RecipeFile, WhatKeysSayTogetherIsCheckedWhereTheOneToBlameWasWritten) {
  const auto complaint_about = [](const std::vector<Setting>& settings) {
    return make_recipe("a", {settings, {}}, recipe_keys(), find_faults).status().message();
  };
  EXPECT_EQ(complaint_about({{"exchange.codec", "topk", "a.toml:3"}}), "");
  EXPECT_THAT(complaint_about({{"exchange.codec", "topk", "a.toml:3"},
                               {"exchange.method", "dense", "a.toml:4"}}),
              AllOf(StartsWith("a.toml:4: 'exchange.method': "), HasSubstr("use gather")));
  EXPECT_THAT(complaint_about({{"data.augment", "true", "a.toml:5"}}),
              AllOf(StartsWith("a.toml:5: 'data.augment': "), HasSubstr("fashion-mnist has no")));
  EXPECT_THAT(complaint_about({{"model.embedding", "3", "a.toml:6"}}),
              AllOf(StartsWith("a.toml:6: 'model.embedding': "), HasSubstr("model mlp has no")));
  EXPECT_EQ(
      complaint_about({{"model.embedding", "3", "a.toml:6"}, {"data.name", "adult", "a.toml:2"}}),
      "");
  EXPECT_THAT(complaint_about({{"optimizer.nesterov", "true", "--set"}}),
              StartsWith("--set: 'optimizer.nesterov': "));
  EXPECT_THAT(complaint_about({{"sync.method", "leader:tua=3", "a.toml:7"}}),
              StartsWith("a.toml:7: 'sync.method': "));
}

TEST(RecipeFile, ListsAreTakenAsInToml) {
  EXPECT_EQ(parse_set("schedule.milestones=[0.5, 1]", recipe_keys()).value().value, "0.5;1");
  EXPECT_EQ(parse_set("schedule.milestones=0.5;1", recipe_keys()).value().value, "0.5;1");
}

TEST(RecipeFile, AnEmptyFileHasNoSettings) {
  const std::string path = ::testing::TempDir() + "/empty.toml";
  std::ofstream(path).close();
  const Written written = read_recipe(path, recipe_keys());
  EXPECT_TRUE(written.status().is_ok());
  EXPECT_EQ(written.settings.size(), 0u);
}

TEST(RecipeFile, OnlyTheFirstEqualsSignSeparates) {
  EXPECT_THAT(parse_set("exchange.codec=fp16:x=1", keys()).status().message(),
              HasSubstr("codec 'fp16': unknown option 'x'"));
}

TEST(RecipeFile, NamesTheArgumentOfACodec) {
  EXPECT_THAT(codec_setting("fp61", "--codecs", keys()).status().message(),
              StartsWith("--codecs: unknown codec 'fp61'"));
  EXPECT_EQ(codec_setting("fp16", "--codecs", keys()).value().key, "exchange.codec");
}

TEST(RecipeFile, UnreadableFile) {
  EXPECT_EQ(read_recipe("no/such.toml", keys()).status().message(), "no/such.toml: cannot be read");
  EXPECT_EQ(read_recipe("/", keys()).status().code(), ErrorCode::kIo);
}

}  // namespace
}  // namespace thinwire::cli
