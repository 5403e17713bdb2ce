// Kernels on disk: what is compiled again, and what is not.
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/kernel_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <barrier>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace thinwire::device {
namespace {

namespace fs = std::filesystem;

class KernelCache : public testing::Test {
 protected:
  KernelCache() : folder_(fs::path(testing::TempDir()) / "thinwire_kernel_cache") {
    fs::remove_all(folder_);
  }
  ~KernelCache() override { fs::remove_all(folder_); }

  std::string get(const KernelKey& key) {
    return cached_kernel(folder_, key, [this] {
      ++compiled_;
      return "code " + std::to_string(compiled_);
    });
  }

  fs::path only_file() const { return fs::directory_iterator(folder_)->path(); }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  fs::path folder_;
  int compiled_ = 0;
  const KernelKey key_{.name = "half_float",
                       .source = "text",
                       .options = "--fmad=false",
                       .compiler = "13.5",
                       .architecture = "sm_90"};
};

TEST_F(KernelCache, CompilesOnce) {
  EXPECT_EQ(get(key_), "code 1");
  EXPECT_EQ(get(key_), "code 1");
  EXPECT_EQ(files(), 1u);
}

TEST_F(KernelCache, CompilesAgainForAnythingElse) {
  get(key_);
  KernelKey other = key_;
  other.source = "text ";
  EXPECT_EQ(get(other), "code 2");
  other = key_;
  other.options = "";
  EXPECT_EQ(get(other), "code 3");
  other = key_;
  other.compiler = "13.0";
  EXPECT_EQ(get(other), "code 4");
  other = key_;
  other.architecture = "sm_80";
  EXPECT_EQ(get(other), "code 5");
  other = key_;
  other.name = "other";
  EXPECT_EQ(get(other), "code 6");
  EXPECT_EQ(get(key_), "code 1");
  EXPECT_EQ(files(), 6u);
}

TEST_F(KernelCache, ReplacesDamagedFiles) {
  get(key_);
  fs::resize_file(only_file(), fs::file_size(only_file()) - 1);
  EXPECT_EQ(get(key_), "code 2");
  {
    std::fstream file(only_file(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  EXPECT_EQ(get(key_), "code 3");
  EXPECT_EQ(get(key_), "code 3");
}

// The processes of containers that share a home have the same numbers, and so have the threads of
// one.
TEST_F(KernelCache, WritersOfTheSameProcessNumberDoNotMeet) {
  get(key_);
  const fs::path path = only_file();
  fs::remove(path);
  fs::create_directory(path.string() + "." + std::to_string(getpid()));
  EXPECT_EQ(get(key_), "code 2");
  EXPECT_EQ(get(key_), "code 2");
}

TEST_F(KernelCache, ThreadsThatWriteAtOnceLeaveOneWholeFile) {
  constexpr int kThreads = 8;
  for (int round = 0; round < 20; ++round) {
    fs::remove_all(folder_);
    std::barrier all_compiled(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        const std::string code(100000 + 1000 * static_cast<size_t>(i), static_cast<char>('a' + i));
        EXPECT_EQ(cached_kernel(folder_, key_,
                                [&] {
                                  all_compiled.arrive_and_wait();
                                  return code;
                                }),
                  code);
      });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(files(), 1u);
    const std::string kept = get(key_);
    EXPECT_EQ(compiled_, 0) << "the file is damaged";
    EXPECT_EQ(kept, std::string(kept.size(), kept[0]));
  }
}

TEST_F(KernelCache, AFileThatCannotTakeItsPlaceIsRemoved) {
  get(key_);
  const fs::path path = only_file();
  fs::remove(path);
  fs::create_directories(path / "taken");
  EXPECT_EQ(get(key_), "code 2");
  EXPECT_EQ(files(), 1u);
}

TEST_F(KernelCache, WorksWithoutAFolder) {
  std::ofstream(folder_).put('x');  // a file where the folder should be
  EXPECT_EQ(get(key_), "code 1");
  EXPECT_EQ(get(key_), "code 2");
  EXPECT_EQ(cached_kernel({}, key_, [] { return std::string("now"); }), "now");
}

}  // namespace
}  // namespace thinwire::device
