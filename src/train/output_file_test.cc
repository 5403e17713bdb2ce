// Tests of outputs where users say: what can be written is known before the work.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "thinwire/trainer.h"
#include "train/temporary_folder.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Whether check_output lets a user who is not root write there.
bool may_write(const fs::path& path, Writing how) {
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    try {
      check_output(path.string(), how);
    } catch (const Error&) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2) << path;
  return WEXITSTATUS(status) == 0;
}

TEST(OutputFile, AnOutputInPlaceNeedsItsFileAndANewOneItsFolder) {
  const TemporaryFolder out;
  const auto all = fs::perms::owner_all | fs::perms::group_all | fs::perms::others_all;
  const auto reads = fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read;
  for (const bool open_folder : {false, true}) {
    const fs::path folder = out / (open_folder ? "open" : "closed");
    fs::create_directory(folder);
    for (const bool open_file : {false, true}) {
      const fs::path page = folder / (open_file ? "open.html" : "closed.html");
      std::ofstream(page) << "page";
      fs::permissions(page, open_file ? all : reads);
    }
    fs::permissions(folder, open_folder ? all
                                        : reads | fs::perms::owner_exec | fs::perms::group_exec |
                                              fs::perms::others_exec);
    fs::permissions(out.path(), all);
    EXPECT_TRUE(may_write(folder / "open.html", Writing::kInPlace));
    EXPECT_FALSE(may_write(folder / "closed.html", Writing::kInPlace));
    EXPECT_EQ(may_write(folder / "new.html", Writing::kInPlace), open_folder);
    for (const char* name : {"open.html", "closed.html", "new.html"})
      EXPECT_EQ(may_write(folder / name, Writing::kReplaces), open_folder) << name;
    fs::permissions(folder, all);  // so that it can be removed
  }
}

TEST(OutputFile, WhatCannotBeWrittenIsKnownBeforehand) {
  const TemporaryFolder out;
  for (const Writing how : {Writing::kInPlace, Writing::kReplaces}) {
    const auto fails = [&](const fs::path& path, const std::string& words) {
      try {
        check_output(path.string(), how);
        ADD_FAILURE() << path;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kIo);
        EXPECT_THAT(error.what(), HasSubstr(path.string() + ": cannot be written: " + words));
      }
    };
    fails(out / "no/such/page.html", "there is no folder " + (out / "no/such").string());
    fails(out.path(), "it is a folder; name a file");
    fails(out / "", "it is a folder; name a file");
    EXPECT_NO_THROW(check_output("page.html", how));
    EXPECT_NO_THROW(check_output("/dev/stdout", how));
  }
}

}  // namespace
}  // namespace thinwire
