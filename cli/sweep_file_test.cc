// Tests of sweep files: which runs a file asks for, and how mistakes are reported.
// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_file.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "cli/sweep_results.h"

namespace thinwire::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

Sweep sweep_of(std::string_view toml, std::vector<Setting> sets = {}) {
  return parse_sweep(toml, "s.toml", sets, recipe_keys()).value();
}

std::string complaint(std::string_view toml) {
  return parse_sweep(toml, "s.toml", {}, recipe_keys()).status().message();
}

std::vector<std::string> names(const Sweep& sweep) {
  std::vector<std::string> all;
  for (const SweepRun& run : sweep.runs) all.push_back(run.name);
  return all;
}

TEST(SweepFile, ARecipeAloneIsOneRun) {
  const Sweep sweep = sweep_of("recipe = \"demo\"");
  EXPECT_EQ(sweep.title, "s");
  EXPECT_THAT(names(sweep), ElementsAre("seed1"));
  EXPECT_EQ(sweep.runs[0].recipe.options.integer("train.seed"), 1);
}

TEST(SweepFile, VariantsInTheOrderTheyWereWrittenSeedBySeed) {
  const Sweep sweep = sweep_of(R"(
recipe = "demo"
seeds = [3, 1]
workers = 4
settings = {"train.epochs" = 2}
first = "plain"
[variants.plain]
exchange.codec = "fp32"
[variants."a, 1 %"]
"exchange.codec" = "topk:density=0.01"
"train.epochs" = 7
)");
  EXPECT_THAT(names(sweep), ElementsAre("plain-seed3", "a-1-seed3", "plain-seed1", "a-1-seed1"));
  EXPECT_EQ(sweep.runs[3].compared_with, "plain");
  const Options& first = sweep.runs[0].recipe.options;
  EXPECT_EQ(first.text("exchange.codec"), "fp32");
  EXPECT_EQ(first.number("train.epochs"), 2);
  EXPECT_EQ(first.integer("run.workers"), 4);
  EXPECT_EQ(first.integer("train.seed"), 3);
  EXPECT_EQ(sweep.runs[1].recipe.options.number("train.epochs"), 7);  // a variant's own word counts
  EXPECT_EQ(sweep.runs[1].variant, "a, 1 %");
}

TEST(SweepFile, AGridIsEveryCombinationWithEveryVariant) {
  const Sweep sweep = sweep_of(R"(
recipe = "demo"
[variants.a]
[variants.b]
[grid]
"optimizer.lr" = [0.1, 0.2]
"train.batch" = [32, 64]
)");
  ASSERT_THAT(sweep.runs, SizeIs(8));
  EXPECT_EQ(sweep.runs[0].variant, "a, lr 0.1, batch 32");
  EXPECT_EQ(sweep.runs[1].variant, "a, lr 0.1, batch 64");
  EXPECT_EQ(sweep.runs[6].variant, "b, lr 0.2, batch 32");
  EXPECT_EQ(sweep.runs[6].name, "b-lr-0.2-batch-32-seed1");
  EXPECT_EQ(sweep.runs[6].recipe.options.number("optimizer.lr"), 0.2);
  EXPECT_EQ(sweep.runs[6].recipe.options.integer("train.batch"), 32);
}

TEST(SweepFile, CasesHaveTheirOwnRecipesSeedsVariantsAndChanges) {
  const Sweep sweep = sweep_of(R"(
[variants.a]
[variants.b]
[[cases]]
recipe = "demo"
workers = 2
changes.b = {"optimizer.lr" = 0.5}
[[cases]]
name = "other, long"
recipe = "adacomp-mnist"
seeds = [2, 3]
variants = ["b"]
settings = {"train.epochs" = 9}
)");
  EXPECT_THAT(names(sweep), ElementsAre("demo-a-seed1", "demo-b-seed1", "other-long-b-seed2",
                                        "other-long-b-seed3"));
  EXPECT_NE(sweep.runs[0].recipe.options.number("optimizer.lr"), 0.5);
  EXPECT_EQ(sweep.runs[1].recipe.options.number("optimizer.lr"), 0.5);
  EXPECT_EQ(sweep.runs[2].recipe.name, "adacomp-mnist");
  EXPECT_EQ(sweep.runs[2].recipe.options.number("train.epochs"), 9);
}

// "a" is not "a, b": the choice is by the variant's own name, with all points of the grid.
TEST(SweepFile, AVariantIsChosenByItsOwnName) {
  const Sweep sweep = sweep_of(R"(
recipe = "demo"
[variants.a]
[variants."a, b"]
[grid]
"train.batch" = [32, 64]
[[cases]]
name = "one"
variants = ["a"]
changes.a = {"train.epochs" = 9}
[[cases]]
name = "two"
variants = ["a, b, batch 64"]
)");
  EXPECT_THAT(names(sweep), ElementsAre("one-a-batch-32-seed1", "one-a-batch-64-seed1",
                                        "two-a-b-batch-64-seed1"));
  EXPECT_EQ(sweep.runs[1].recipe.options.number("train.epochs"), 9);
}

TEST(SweepFile, PointsOfAGridAreComparedWithTheSamePoint) {
  const std::string_view rest = "[variants.a]\n[variants.b]\n[grid]\n\"train.batch\" = [32, 64]\n";
  const auto with = [&](const std::string& first) {
    return sweep_of("recipe = \"demo\"\nfirst = \"" + first + "\"\n" + std::string(rest)).runs[3];
  };
  EXPECT_EQ(with("a").variant, "b, batch 64");
  EXPECT_EQ(with("a").compared_with, "a, batch 64");
  EXPECT_EQ(with("a, batch 32").compared_with, "a, batch 32");
}

TEST(SweepFile, TheCommandLineHasTheLastWord) {
  const Sweep sweep = sweep_of("recipe = \"demo\"\n[variants.a]\n\"train.epochs\" = 5\n",
                               {{"train.epochs", "3", "--set train.epochs=3"}});
  EXPECT_EQ(sweep.runs[0].recipe.options.number("train.epochs"), 3);
  EXPECT_EQ(sweep.runs[0].changes.back().value, "3");
}

TEST(SweepFile, ShippedStudiesAreSweeps) {
  size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(THINWIRE_SOURCE_RECIPES "/../studies")) {
    const auto sweep = read_sweep(entry.path().string(), {}, recipe_keys());
    EXPECT_TRUE(sweep.is_ok()) << sweep.status().message();
    ++files;
  }
  EXPECT_GE(files, 5u);
}

TEST(SweepFile, MistakesNameFileLineKeyAndChoices) {
  EXPECT_THAT(complaint("recipe = \"demo\"\nseed = [1]\n"),
              AllOf(StartsWith("s.toml:2: unknown key 'seed'; did you mean 'seeds'?"),
                    HasSubstr("known: title, about")));
  EXPECT_THAT(complaint("recipe = \"demo\"\njudge = \"lose\"\n"),
              StartsWith("s.toml:2: 'judge' must be 'error', 'loss' or 'bytes', not 'lose'"));
  EXPECT_THAT(complaint("recipe = \"dmeo\"\n"), HasSubstr("did you mean 'demo'?"));
  EXPECT_THAT(complaint("seeds = [1]\n"), HasSubstr("names no recipe"));
  EXPECT_THAT(complaint("recipe = \"demo\"\nseeds = 3\n"),
              StartsWith("s.toml:2: 'seeds' must be a list"));
  EXPECT_THAT(complaint("recipe = \"demo\"\nseeds = [\"one\"]\n"),
              StartsWith("s.toml:2: 'seeds' must be whole numbers"));
  EXPECT_THAT(complaint("recipe = \"demo\"\n[variants.a]\n\"train.epoch\" = 1\n"),
              AllOf(StartsWith("s.toml:3: "), HasSubstr("did you mean 'train.epochs'?")));
  EXPECT_THAT(complaint("recipe = \"demo\"\n[grid]\n\"train.epochs\" = 3\n"),
              StartsWith("s.toml:3: 'train.epochs' must be a list of values"));
  EXPECT_THAT(complaint("recipe = \"demo\"\n[grid]\n\"train.batch\" = [8, \"x\"]\n"),
              AllOf(StartsWith("s.toml:3: 'train.batch' is the text"),
                    HasSubstr("must be a whole number")));
  EXPECT_THAT(complaint("recipe = \"demo\"\nfirst = \"b\"\n[variants.a]\n"),
              StartsWith("s.toml:2: unknown variant 'b' (variants: a)"));
  EXPECT_THAT(complaint("recipe = \"demo\"\n[variants.a]\n[[cases]]\nvariants = [\"b\"]\n"),
              StartsWith("s.toml:4: unknown variant 'b' (variants: a)"));
  EXPECT_THAT(complaint("recipe = \"demo\"\n[variants.a]\n[[cases]]\nchanges.b = {}\n"),
              AllOf(StartsWith("s.toml:4: "), HasSubstr("unknown variant 'b'")));
  EXPECT_THAT(complaint("recipe = = 1\n"), StartsWith("s.toml:1: not valid TOML"));
  // Wrong together only: where the key to blame was written.
  EXPECT_THAT(complaint("recipe = \"demo\"\n[variants.a]\n\"model.embedding\" = 8\n"),
              AllOf(StartsWith("s.toml:3: "), HasSubstr("model.embedding")));
}

TEST(SweepFile, RunsNeverShareAFolder) {
  EXPECT_THAT(complaint("recipe = \"demo\"\n[variants.\"a b\"]\n[variants.\"a, b\"]\n"),
              HasSubstr("two runs are called 'a-b-seed1'"));
}

// --- what runs came to
// --------------------------------------------------------------------------------

class FinishedSummary : public ::testing::Test {
 protected:
  FinishedSummary() : sweep_(sweep_of("recipe = \"demo\"\nworkers = 3\n")) {
    for (const OptionInfo& row : recipe_keys())
      summary_["settings"][std::string(row.name)] = run().recipe.options.canonical(row.name);
    summary_["finished"] = true;
    summary_["world_size"] = 3;
  }
  ~FinishedSummary() override { std::filesystem::remove(path_); }

  const SweepRun& run() const { return sweep_.runs[0]; }
  bool is_done() {
    std::ofstream(path_) << summary_.dump();
    return finished_summary(path_, run(), difference_).has_value();
  }

  Sweep sweep_;
  nlohmann::json summary_;
  std::string difference_;
  std::string path_ = ::testing::TempDir() + "sweep_file_test_summary.json";
};

TEST_F(FinishedSummary, OfTheSameRecipeCounts) {
  EXPECT_TRUE(is_done());
  EXPECT_THAT(difference_, IsEmpty());
}

TEST_F(FinishedSummary, OfAnotherRecipeDoesNotAndNamesTheKey) {
  summary_["settings"]["train.epochs"] = "77";
  EXPECT_FALSE(is_done());
  EXPECT_THAT(difference_, StartsWith("train.epochs: 77 before, "));
}

// Those that are left at the end are fewer than the recipe's.
TEST_F(FinishedSummary, OfARunThatLostWorkersCounts) {
  summary_["settings"]["run.workers"] = std::to_string(summary_["world_size"].get<int>());
  summary_["world_size"] = summary_["world_size"].get<int>() - 1;
  EXPECT_FALSE(is_done());
  summary_["lost_workers"] = {0};
  EXPECT_TRUE(is_done()) << difference_;
}

TEST_F(FinishedSummary, AKeyThatDidNotExistStandsForItsDefault) {
  summary_["settings"].erase("model.width");
  EXPECT_TRUE(is_done());
  summary_["settings"].erase("data.name");  // demo's is not the default
  EXPECT_EQ(is_done(), run().recipe.options.text("data.name") == "fashion-mnist");
}

TEST_F(FinishedSummary, WorkersAreThoseThatThereWere) {
  summary_["settings"]["run.workers"] = "8";
  EXPECT_TRUE(is_done());
  summary_["world_size"] = 8;
  EXPECT_FALSE(is_done());
}

TEST_F(FinishedSummary, WhereItComputedDoesNotMatter) {
  summary_["settings"]["run.device"] = "cuda";
  EXPECT_TRUE(is_done());
}

TEST_F(FinishedSummary, OfACutOffRunDoesNot) {
  summary_["finished"] = false;
  EXPECT_FALSE(is_done());
  EXPECT_THAT(difference_, IsEmpty());
}

TEST(SweepResults, MeanAndStudentsInterval) {
  EXPECT_FALSE(mean_and_interval({2}).half_interval.has_value());
  const Measured three = mean_and_interval({1, 2, 6});
  EXPECT_DOUBLE_EQ(three.mean, 3);
  // s = sqrt(7), t = 4.303 for two degrees of freedom, over sqrt(3).
  EXPECT_NEAR(*three.half_interval, 4.303 * std::sqrt(7.0) / std::sqrt(3.0), 1e-9);
}

// A figure that is null or not there is none, and not 0.
TEST(SweepResults, RunsWithoutAFigureDoNotCountInIt) {
  const Sweep sweep =
      sweep_of("recipe = \"demo\"\nfirst = \"a\"\nseeds = [1, 2]\n[variants.a]\n[variants.b]\n");
  const std::vector<SweepResult> results = {
      {&sweep.runs[0], {{"final_hold_out_error", 0.25}, {"seconds", 4}}},
      {&sweep.runs[1], {{"seconds", 8}}},
      {&sweep.runs[2], {{"final_hold_out_error", 0.5}}},
      {&sweep.runs[3], {{"final_hold_out_error", 0.75}, {"seconds", nullptr}}}};
  const auto rows = rows_of(sweep, results);
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0].seconds.mean, 4);
  EXPECT_EQ(rows[0].seconds.count, 1u);
  EXPECT_EQ(rows[1].seconds.mean, 8);
  ASSERT_THAT(rows[1].errors, SizeIs(1));
  EXPECT_EQ(rows[1].errors[0].second.mean, 0.75);
  ASSERT_THAT(rows[1].differences, SizeIs(1));
  EXPECT_EQ(rows[1].differences[0].second.mean, 0.25);
  EXPECT_EQ(rows[1].differences[0].second.count, 1u);
  EXPECT_FALSE(json_of(rows)[0].contains("wire_ratio"));
  EXPECT_THAT(table_of(rows).markdown(), HasSubstr("|            |"));
}

TEST(SweepResults, RowsPairDifferencesBySeed) {
  const Sweep sweep =
      sweep_of("recipe = \"demo\"\nfirst = \"a\"\nseeds = [1, 2]\n[variants.a]\n[variants.b]\n");
  std::vector<SweepResult> results;
  const double errors[] = {0.1, 0.3, 0.2, 0.5};  // a1 b1 a2 b2
  for (size_t i = 0; i < 4; ++i)
    results.push_back({&sweep.runs[i], {{"final_test_error", errors[i]}, {"seconds", i}}});
  const auto rows = rows_of(sweep, results);
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_THAT(rows[0].differences, IsEmpty());
  ASSERT_THAT(rows[1].differences, SizeIs(1));
  EXPECT_NEAR(rows[1].differences[0].second.mean, 0.25, 1e-12);
  EXPECT_NEAR(*rows[1].differences[0].second.half_interval, 12.706 * 0.05, 1e-9);
  EXPECT_THAT(rows[1].runs, ElementsAre("b-seed1", "b-seed2"));
  EXPECT_THAT(csv_of(results), HasSubstr("\"b-seed2\",\"\",\"b\",2,0.5,3"));

  // A variant none of whose runs finished stays, and says why.
  const std::vector<SweepResult> of_a = {results[0], results[2]};
  const auto marked =
      rows_of(sweep, of_a, {{&sweep.runs[1], "no memory"}, {&sweep.runs[3], "no memory"}});
  ASSERT_THAT(marked, SizeIs(2));
  EXPECT_THAT(marked[1].runs, IsEmpty());
  EXPECT_THAT(failures_of(marked), ElementsAre("b, 2 failed (b-seed1, b-seed2): no memory"));
  EXPECT_THAT(table_of(marked).markdown(), HasSubstr("| b       | 0 (2 failed) |"));
  const auto json = json_of(marked);
  EXPECT_EQ(json[1]["failed"][1].dump(), R"({"run":"b-seed2","reason":"no memory"})");
  EXPECT_FALSE(json[1].contains("seconds"));
  EXPECT_THAT(rows_of(sweep, of_a), SizeIs(1));

  results.erase(results.begin());  // a's first seed is still to be made
  EXPECT_EQ(rows_of(sweep, results)[1].differences[0].second.count, 1u);
}

}  // namespace
}  // namespace thinwire::cli
