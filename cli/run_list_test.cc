// Lists of runs, while the runs are made and afterwards, and files that are none.
// SPDX-License-Identifier: Apache-2.0
#include "cli/run_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

class RunListTest : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }

  const fs::path folder_ =
      fs::path(::testing::TempDir()) /
      (std::string("listed-") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(RunListTest, SaysWhichRunsThereAreUntilTheyHaveEnded) {
  EXPECT_FALSE(listed_runs(folder_));
  {
    const RunList list(folder_ / "all", {"plain-seed1", "a \"b\""});
    const auto listed = listed_runs(folder_ / "all");
    ASSERT_TRUE(listed);
    EXPECT_THAT(listed->runs, ElementsAre("plain-seed1", "a \"b\""));
    EXPECT_FALSE(listed->ended);
  }
  EXPECT_TRUE(listed_runs(folder_ / "all")->ended);
  const RunList again(folder_ / "all", {"plain-seed2"});
  EXPECT_FALSE(listed_runs(folder_ / "all")->ended) << "they go on";
  EXPECT_THAT(listed_runs(folder_ / "all")->runs, ElementsAre("plain-seed2"));
}

TEST_F(RunListTest, OtherFilesAreNoLists) {
  fs::create_directories(folder_);
  for (const char* text : {"", "{", "[]", "7", "{\"runs\":7}", "{\"ended\":true}"}) {
    std::ofstream(folder_ / "runs.json") << text;
    EXPECT_FALSE(listed_runs(folder_)) << text;
  }
  std::ofstream(folder_ / "runs.json") << "{\"runs\":[1,\"a\"],\"ended\":\"yes\"}";
  EXPECT_THAT(listed_runs(folder_)->runs, ElementsAre("a"));
  EXPECT_FALSE(listed_runs(folder_)->ended);
}

TEST_F(RunListTest, AFolderThatCannotBeWrittenHasNone) {
  std::ofstream(folder_) << "a file";
  { const RunList list(folder_, {"a"}); }
  EXPECT_FALSE(listed_runs(folder_));
}

}  // namespace
}  // namespace thinwire::cli
