// Runs that grow, shrink and end while they are followed, and what is shown of them.
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/followed_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "cli/text.h"
#include "cli/watch/run_view.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A folder of a run, removed at the end.
class RunFiles {
 public:
  explicit RunFiles(std::string more = "") : more_(std::move(more)) {
    fs::create_directories(path());
    std::ofstream(path() / "recipe.toml")
        << "[train]\nepochs = 4\n[exchange]\ncodec = \"topk:density=0.01\"\n";
  }
  ~RunFiles() { fs::remove_all(path()); }

  fs::path path() const {
    return fs::path(::testing::TempDir()) /
           (std::string("followed-") +
            ::testing::UnitTest::GetInstance()->current_test_info()->name() + more_);
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
  // Of steps of a second each, of which it waits for `wait`.
  void add_rank(int rank, double wait) {
    fs::create_directories(path() / "ranks");
    std::ofstream(path() / "ranks" / (std::to_string(rank) + ".json"))
        << "{\"rank\":" << rank
        << ",\"step\":40,\"loss\":0.5,\"times\":{\"fetch\":0,\"compute\":" << 1 - wait
        << ",\"update\":0,\"wait\":" << wait << "}}";
  }
  void finish(int steps) {
    std::ofstream(path() / "summary.json") << "{\"finished\":true,\"steps\":" << steps << "}";
  }

 private:
  std::string more_;  // of the name
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

TEST(FollowedRun, IsReadAgainWhenTheFileShrankAndGrewBetweenTwoLooks) {
  RunFiles files;
  for (int step = 1; step <= 5; ++step) files.add_step(step, ",\"skipped\":true");
  FollowedRun run(files.path());
  // As a run does it that is resumed after step 2, and is faster than the look.
  fs::remove(files.path() / "metrics.jsonl");
  for (int step = 1; step <= 2; ++step) files.add_step(step, ",\"skipped\":true");
  for (int step = 3; step <= 20; ++step) files.add_step(step);
  run.update();
  EXPECT_EQ(run.steps(), 20u);
  EXPECT_EQ(run.skipped(), 2u);
  EXPECT_EQ(run.recent().size(), 20u);
}

TEST(FollowedRun, StepsThatDoNotGoOnHaveNoSpeed) {
  RunFiles files;
  files.add_step(3);
  files.add_step(3);
  FollowedRun run(files.path());
  EXPECT_FALSE(run.seconds_left());
  auto lines = lines_of(run, {});
  EXPECT_THAT(lines[1], AllOf(Not(HasSubstr("left")), HasSubstr("step 3")));
  EXPECT_EQ(lines[3], "  step   compute 63%  wait 21%  update 5%  fetch 11%  other 0%");
  files.add_step(7);
  files.add_step(2);  // back
  run.update();
  EXPECT_FALSE(run.seconds_left());
  EXPECT_EQ(run.recent().size(), 1u);
  files.add_step(4);
  run.update();
  EXPECT_DOUBLE_EQ(*run.seconds_left(), 36);
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
  files.add(
      "nonsense\n\n[1]\n{\"step\":\"two\"}\n{\"step\":-1}\n{\"step\":1e300}\n{\"other\":1}\n"
      "{\"step\":2,\"times\":7,\"lost\":1}\n");
  FollowedRun run(files.path());
  files.add_step(3);
  run.update();
  EXPECT_EQ(run.steps(), 3u);
  EXPECT_EQ(run.newest().lost, 0u);
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

TEST(RunView, NoLineIsWiderThanALiveTerminalHoweverNarrow) {
  RunFiles files(std::string(120, 'n'));
  for (int step = 1; step <= 100; ++step) files.add_step(step, ",\"skipped\":true");
  for (const bool ends : {false, true}) {
    if (ends) files.finish(100);
    const FollowedRun run(files.path());
    for (const int width : {1, 2, 10, 39, 80})
      for (const std::string& line : lines_of(run, {.live = true, .unicode = true, .width = width}))
        EXPECT_LE(columns(line), static_cast<size_t>(std::max(width - 1, 1))) << line;
  }
}

TEST(RunView, NamesMoveNoCursor) {
  RunFiles files("\033[2J");
  std::ofstream(files.path() / "recipe.toml") << "[exchange]\ncodec = \"\\u001b[3J\"\n";
  files.add_step(1);
  for (const std::string& line : lines_of(FollowedRun(files.path()), {}))
    EXPECT_THAT(line, Not(HasSubstr("\033"))) << line;
}

TEST(RunView, WhatCodecAutoDecidedIsShown) {
  RunFiles files;
  std::ofstream(files.path() / "recipe.toml") << "[exchange]\ncodec = \"auto\"\n";
  files.add_step(1, ",\"codecs\":{\"fp32\":[\"a\",\"b\"]}");
  FollowedRun run(files.path());
  EXPECT_EQ(lines_of(run, {}).back(), "  codecs fp32 (2 tensors)");
  files.add_step(2,
                 ",\"codecs\":{\"fp32\":[\"a\"],\"int8:block=256\":[\"b\",\"c\"]},"
                 "\"decisions\":[{\"step\":1,\"why\":\"few bytes\"}]");
  files.add_step(3);
  run.update();
  const auto lines = lines_of(run, {});
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[5], "  codecs int8:block=256 (2 tensors)  fp32 (1 tensor)");
  EXPECT_EQ(lines[6], "  auto   since step 2: few bytes");
  EXPECT_EQ(lines_of(run, {.width = 50})[5], "  codecs int8:block=256 (2 tensors)  and 1 more");
}

TEST(RunView, TheLastRoundIsShown) {
  RunFiles files;
  std::ofstream(files.path() / "recipe.toml")
      << "[sync]\nmethod = \"leader:tau=8\"\n[exchange]\ncodec = \"int8\"\n";
  files.add_step(8,
                 ",\"round\":{\"round\":0,\"global\":false,\"seconds\":0.5,\"sent_bytes\":7,"
                 "\"skipped\":\"corrupt\",\"culprit\":3}");
  FollowedRun run(files.path());
  EXPECT_THAT(lines_of(run, {})[0], HasSubstr("  leader:tau=8  int8"));
  EXPECT_EQ(lines_of(run, {}).back(),
            "  round  0 at step 8  skipped: corrupt  of a group  0.5 s  7 B  1 skipped");
  files.add_step(16,
                 ",\"round\":{\"round\":1,\"global\":true,\"ranks\":[0,1,3],\"leader\":3,"
                 "\"seconds\":2,\"sent_bytes\":7000}");
  run.update();
  EXPECT_EQ(lines_of(run, {}).back(),
            "  round  1 at step 16  leader 3  3 workers  2.0 s  7.00 kB  1 skipped");
}

TEST(RunView, RanksThatWereLeftOutOrCameAreShown) {
  RunFiles files;
  files.add_step(1, ",\"left_out\":[{\"rank\":3,\"why\":\"silence\"}],\"unchosen\":[0]");
  files.add_step(2,
                 ",\"left_out\":[{\"rank\":3,\"why\":\"corrupt\"}],\"joined\":[2],"
                 "\"lost\":[{\"rank\":1}]");
  const auto lines = lines_of(FollowedRun(files.path()), {.width = 120});
  EXPECT_THAT(lines[4], HasSubstr("1 workers lost  1 joined"));
  EXPECT_EQ(lines.back(),
            "  out    rank 0 in 1 steps (the rule's choice)  rank 3 in 2 steps (corrupt)");
}

TEST(RunView, StagesAreShown) {
  RunFiles files;
  files.add_step(1,
                 ",\"pipeline\":{\"idle_share\":0.25,\"boundaries\":[{\"behind\":\"block1\","
                 "\"forward\":{\"values\":100,\"payload_bytes\":50},"
                 "\"backward\":{\"values\":100,\"payload_bytes\":100}}]}");
  EXPECT_EQ(lines_of(FollowedRun(files.path()), {}).back(),
            "  stages idle 25%  block1 8.00x and 4.00x back");
}

TEST(RunView, EachRankHasALine) {
  RunFiles files;
  files.add_step(1);
  files.add_rank(0, 0.9);
  EXPECT_EQ(lines_of(FollowedRun(files.path()), {}).size(), 5u) << "rank 0 is what the rest says";
  files.add_rank(1, 0.25);
  std::ofstream(files.path() / "ranks/2.json.tmp") << "{";
  std::ofstream(files.path() / "ranks/note.json") << "[]";
  files.add_rank(2, 3.0);  // times that cannot be
  EXPECT_EQ(lines_of(FollowedRun(files.path()), {}).size(), 8u);
  fs::remove(files.path() / "ranks/2.json");
  auto lines = lines_of(FollowedRun(files.path()), {});
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[5], "  ==.................. rank 0   works  10%  0.1 s  loss 0.5000  step 40");
  EXPECT_EQ(lines[6], "  ===============..... rank 1   works  75%  0.75 s  loss 0.5000  step 40");
  for (int rank = 2; rank < 20; ++rank) files.add_rank(rank, rank == 11 ? 0.0 : 0.5);
  lines = lines_of(FollowedRun(files.path()), {});
  ASSERT_EQ(lines.size(), 5u + 8 + 1);
  EXPECT_THAT(lines[5], HasSubstr("rank 11  works 100%"));
  EXPECT_EQ(lines.back(), "  and 12 ranks that wait longer");
  fs::last_write_time(files.path() / "ranks/11.json",
                      fs::file_time_type::clock::now() - std::chrono::minutes(10));
  EXPECT_THAT(lines_of(FollowedRun(files.path()), {})[5], HasSubstr("nothing written for 10:0"));
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
