// Runs that grow, shrink and end while they are followed, and what is shown of them.
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/followed_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "cli/text.h"
#include "cli/watch/run_view.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A folder of a run, removed at the end.
class RunFiles {
 public:
  RunFiles() {
    fs::create_directories(path());
    std::ofstream(path() / "recipe.toml")
        << "[train]\nepochs = 4\n[exchange]\ncodec = \"topk:density=0.01\"\n";
  }
  ~RunFiles() { fs::remove_all(path()); }

  fs::path path() const {
    return fs::path(::testing::TempDir()) /
           (std::string("followed-") +
            ::testing::UnitTest::GetInstance()->current_test_info()->name());
  }

  void add(const std::string& text) {
    std::ofstream(path() / "metrics.jsonl", std::ios::app) << text;
  }
  // Step `step` of 40, a second each.
  void add_step(int step, const std::string& more = "") {
    add("{\"step\":" + std::to_string(step) + ",\"epoch\":" + std::to_string(step / 10.0) +
        ",\"loss\":" + std::to_string(2.0 / step) + ",\"seconds\":" + std::to_string(step) +
        ",\"dense_bytes\":4000,\"sent_bytes\":100,\"kept_over_target\":0.5,"
        "\"times\":{\"fetch\":0.1,\"compute\":0.6,\"wait\":0.2,\"update\":0.05}" +
        more + "}\n");
  }
  void finish(int steps) {
    std::ofstream(path() / "summary.json") << "{\"finished\":true,\"steps\":" << steps << "}";
  }
};

TEST(FollowedRun, ReadsWhatIsAddedAndWaitsForTheEndOfALine) {
  RunFiles files;
  FollowedRun run(files.path());
  EXPECT_TRUE(run.recent().empty());
  EXPECT_EQ(run.codec(), "topk:density=0.01");
  files.add_step(1);
  run.update();
  EXPECT_EQ(run.steps(), 1u);
  EXPECT_FALSE(run.seconds_left());  // one step has no rate
  files.add("{\"step\":2,\"epoch\":0.2,\"loss\":1.0,\"sec");
  run.update();
  EXPECT_EQ(run.steps(), 1u);
  files.add("onds\":2}\n");
  run.update();
  EXPECT_EQ(run.steps(), 2u);
  EXPECT_DOUBLE_EQ(*run.done(), 0.05);
  EXPECT_DOUBLE_EQ(*run.seconds_left(), 38);
  files.add(
      "{\"step\":2,\"test_error\":0.5}\n{\"step\":2,\"test_error\":0.3}\n"
      "{\"step\":2,\"test_error\":0.1,\"hold_out_error\":0.4}\n");
  run.update();
  EXPECT_DOUBLE_EQ(*run.error(), 0.4);
  EXPECT_DOUBLE_EQ(*run.best_error(), 0.3);
}

TEST(FollowedRun, IsReadAgainWhenTheRunBeginsAgain) {
  RunFiles files;
  for (int step = 1; step <= 5; ++step) files.add_step(step, ",\"skipped\":true");
  files.finish(5);
  FollowedRun run(files.path());
  EXPECT_TRUE(run.finished());
  EXPECT_EQ(run.skipped(), 5u);
  fs::remove(files.path() / "metrics.jsonl");
  std::ofstream(files.path() / "recipe.toml")
      << "[train]\nepochs = 2\n[exchange]\ncodec = \"int8\"\n";
  files.add_step(1);
  run.update();
  EXPECT_EQ(run.steps(), 1u);
  EXPECT_EQ(run.skipped(), 0u);
  EXPECT_EQ(run.codec(), "int8") << "the recipe is the new run's";
  for (int step = 2; step <= 8; ++step) files.add_step(step);
  run.update();
  EXPECT_FALSE(run.finished()) << "the summary is of a run of 5 steps";
  EXPECT_DOUBLE_EQ(*run.done(), 0.4);  // of two epochs
}

TEST(FollowedRun, KeepsFewLossesOfALongRun) {
  RunFiles files;
  for (int step = 1; step <= 1000; ++step) files.add_step(step);
  const FollowedRun run(files.path());
  EXPECT_LE(run.losses().size(), 64u);
  EXPECT_GE(run.losses().size(), 32u);
  EXPECT_GT(run.losses().front(), run.losses().back());
  EXPECT_EQ(run.recent().size(), 200u);
}

TEST(FollowedRun, LinesOfNoStepAreNotItsBusiness) {
  RunFiles files;
  files.add("nonsense\n[1]\n{\"step\":\"two\"}\n{\"other\":1}\n");
  FollowedRun run(files.path());
  files.add_step(3);
  run.update();
  EXPECT_EQ(run.steps(), 3u);
}

TEST(RunView, ARunThatGoesOnHasFiveLines) {
  RunFiles files;
  for (int step = 1; step <= 10; ++step) files.add_step(step);
  files.add("{\"step\":10,\"test_error\":0.25}\n");
  const auto lines = lines_of(FollowedRun(files.path()), {.unicode = true});
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_THAT(lines[0], HasSubstr("topk:density=0.01"));
  EXPECT_THAT(lines[1], HasSubstr(" 25%  0:30 left  step 10  epoch 1.00"));
  EXPECT_THAT(lines[2], HasSubstr("0.2000  \u2588\u2584\u2583"));
  EXPECT_THAT(lines[2], HasSubstr("error 25.00% (best 25.00%)"));
  EXPECT_EQ(lines[3], "  step   1 s  compute 60%  wait 20%  update 5%  fetch 10%  other 5%");
  EXPECT_EQ(lines[4], "  bytes  100 B a step  wire ratio 40.0x  kept/target 0.50");
}

TEST(RunView, NoLineIsWiderThanTheTerminal) {
  RunFiles files;
  for (int step = 1; step <= 100; ++step)
    files.add_step(step, ",\"skipped\":true,\"lost\":[{\"rank\":1,\"why\":\"silent\"}]");
  files.add("{\"step\":100,\"test_error\":0.25}\n");
  const FollowedRun run(files.path());
  for (const int width : {60, 80, 100, 200})
    for (const std::string& line : lines_of(run, {.width = width}))
      EXPECT_LT(columns(line), static_cast<size_t>(width)) << line;
}

TEST(RunView, SilenceIsSaid) {
  RunFiles files;
  files.add_step(1);
  fs::last_write_time(files.path() / "metrics.jsonl",
                      fs::file_time_type::clock::now() - std::chrono::minutes(10));
  EXPECT_THAT(lines_of(FollowedRun(files.path()), {})[1], HasSubstr("nothing written for 10:0"));
  files.finish(1);
  const auto lines = lines_of(FollowedRun(files.path()), {});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("  done  1 steps"));
  EXPECT_THAT(lines[0], Not(HasSubstr("written")));
}

TEST(RunView, SparklinesHaveTheMeansOfNeighbours) {
  EXPECT_EQ(sparkline({0, 7}, 10, {}), "_#");
  EXPECT_EQ(sparkline({1, 1, 3, 3}, 2, {.unicode = true}), "\u2581\u2588");
  EXPECT_EQ(sparkline({5, 5}, 10, {}), "__");
  EXPECT_EQ(sparkline({}, 10, {}), "");
}

}  // namespace
}  // namespace thinwire::cli
