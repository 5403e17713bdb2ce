// Tests of parallel_for: every part is done once, from any thread and any process.
// SPDX-License-Identifier: Apache-2.0
#include "core/parallel_for.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {
namespace {

class ParallelFor : public ::testing::Test {
 protected:
  void TearDown() override { set_codec_threads(1); }
};

// How often each value was covered, and by how many ranges.
std::vector<int> covered(size_t count, size_t unit, size_t& ranges) {
  std::vector<int> times(count);
  std::atomic<size_t> calls{0};
  parallel_for(count, unit, [&](size_t begin, size_t end) {
    EXPECT_TRUE(begin % unit == 0 && (end == count || end % unit == 0)) << begin << " " << end;
    for (size_t i = begin; i < end; ++i) ++times[i];
    ++calls;
  });
  ranges = calls;
  return times;
}

TEST_F(ParallelFor, CoversEveryValueOnce) {
  for (const int threads : {1, 2, 3, 16})
    for (const size_t count :
         {size_t{0}, size_t{1}, kLeastParallel - 1, kLeastParallel, 3 * kLeastParallel + 7})
      for (const size_t unit : {size_t{1}, size_t{8192}, size_t{100'000}, size_t{5'000'000}}) {
        set_codec_threads(threads);
        size_t ranges = 0;
        EXPECT_EQ(covered(count, unit, ranges), std::vector<int>(count, 1));
        if (threads == 1 || count < kLeastParallel || unit >= count)
          EXPECT_EQ(ranges, count == 0 ? 0u : 1u);
        else
          EXPECT_GE(ranges, 3u) << count << " values, unit " << unit;
      }
}

TEST_F(ParallelFor, UsesOtherThreads) {
  set_codec_threads(3);
  EXPECT_EQ(codec_threads(), 3);
  std::atomic<int> inside{0};
  std::atomic<bool> met{false};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  parallel_for(kLeastParallel, 1, [&](size_t, size_t) {
    ++inside;
    while (!met && std::chrono::steady_clock::now() < until)
      if (inside >= 2) met = true;
  });
  EXPECT_TRUE(met);
}

TEST_F(ParallelFor, ManyCallersAtOnceAllEnd) {
  set_codec_threads(4);
  std::atomic<size_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller)
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i)
        parallel_for(kLeastParallel, 1, [&](size_t begin, size_t end) { sum += end - begin; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 6 * 200 * kLeastParallel);
}

TEST_F(ParallelFor, WorksInAForkedProcess) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer ends a forked process that starts threads";
#endif
  set_codec_threads(2);
  size_t ranges = 0;
  covered(kLeastParallel, 1, ranges);
  const pid_t child = fork();
  if (child == 0) {
    size_t sum = 0;
    std::atomic<size_t> all{0};
    for (int i = 0; i < 50; ++i)
      parallel_for(kLeastParallel, 1, [&](size_t begin, size_t end) { all += end - begin; });
    sum = all;
    _exit(sum == 50 * kLeastParallel ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(ParallelFor, CountsOfThreads) {
  set_codec_threads(0);
  EXPECT_GE(codec_threads(), 1);
  EXPECT_THROW(set_codec_threads(-1), Error);
}

}  // namespace
}  // namespace thinwire
