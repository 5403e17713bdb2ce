// Vectors of a pool: who gets which memory, and when it is freed.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/scratch_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <thread>
#include <vector>

namespace thinwire {
namespace {

// The lengths of the vectors that were made, and those that are still there.
struct Made {
  std::vector<size_t> lengths;
  size_t alive = 0;
};

ScratchPool::Make maker(Made& made) {
  return [&made](size_t count) {
    made.lengths.push_back(count);
    ++made.alive;
    auto* const values = new std::vector<float>(count);
    return PlacedVector{*values, std::shared_ptr<void>(values, [&made](void* old) {
                          --made.alive;
                          delete static_cast<std::vector<float>*>(old);
                        })};
  };
}

TEST(ScratchPool, ServesOneAfterAnotherWithOneVector) {
  Made made;
  const auto pool = std::make_shared<ScratchPool>(maker(made));
  const float* const first = pool->take(100).values.data();
  const PlacedVector shorter = pool->take(60);
  EXPECT_EQ(shorter.values.data(), first);
  EXPECT_EQ(shorter.values.size(), 60u);
  EXPECT_EQ(made.lengths, std::vector<size_t>{100});
}

TEST(ScratchPool, GivesThoseInUseAtATimeMemoryOfTheirOwn) {
  Made made;
  const auto pool = std::make_shared<ScratchPool>(maker(made));
  PlacedVector a = pool->take(10), b = pool->take(20);
  EXPECT_NE(a.values.data(), b.values.data());
  float* const of_b = b.values.data();
  a = {};
  b = {};
  EXPECT_EQ(pool->take(15).values.data(), of_b);  // the shortest that is long enough
  EXPECT_EQ(made.alive, 2u);
}

TEST(ScratchPool, KeepsNoVectorThatALongerOneReplaces) {
  Made made;
  const auto pool = std::make_shared<ScratchPool>(maker(made));
  for (const size_t count : {10, 20, 40}) pool->take(count);
  EXPECT_EQ(made.lengths, (std::vector<size_t>{10, 20, 40}));
  EXPECT_EQ(made.alive, 1u);
}

TEST(ScratchPool, ForgetsAVectorThatCouldNotBeMade) {
  Made made;
  bool fails = true;
  const auto pool = std::make_shared<ScratchPool>([&](size_t count) {
    if (fails) throw std::bad_alloc();
    return maker(made)(count);
  });
  EXPECT_THROW(pool->take(10), std::bad_alloc);
  fails = false;
  EXPECT_EQ(pool->take(10).values.size(), 10u);
  EXPECT_EQ(made.alive, 1u);
}

TEST(ScratchPool, ServesThreadsAtATime) {
  constexpr size_t kThreads = 4;
  Made made;
  const auto make = maker(made);
  std::mutex mutex;  // of `made`
  const auto pool = std::make_shared<ScratchPool>([&](size_t count) {
    const std::lock_guard lock(mutex);
    return make(count);
  });
  std::atomic<size_t> spoilt = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (size_t turn = 0; turn < 200; ++turn) {
        const PlacedVector mine = pool->take(1000);  // of one length, so that none is freed
        std::fill(mine.values.begin(), mine.values.end(), static_cast<float>(t));
        for (const float value : mine.values) spoilt += value != static_cast<float>(t);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(spoilt, 0u);
  EXPECT_LE(made.alive, kThreads);
}

TEST(ScratchPool, FreesItsMemoryWithItsLastUser) {
  Made made;
  auto pool = std::make_shared<ScratchPool>(maker(made));
  PlacedVector taken = pool->take(10);
  pool.reset();
  EXPECT_EQ(made.alive, 1u);
  taken = {};
  EXPECT_EQ(made.alive, 0u);
}

TEST(ScratchPool, IsOneForEachPlace) {
  constexpr uint64_t kPlace = ~uint64_t{0}, kOther = kPlace - 1;  // of no device
  Made made, other;
  auto pool = shared_scratch_pool(kPlace, maker(made));
  EXPECT_EQ(shared_scratch_pool(kPlace, maker(other)), pool);
  EXPECT_NE(shared_scratch_pool(kOther, maker(other)), pool);
  pool->take(10);
  pool.reset();
  EXPECT_EQ(made.alive, 0u);
  shared_scratch_pool(kPlace, maker(other))->take(10);
  EXPECT_EQ(made.lengths.size(), 1u);
  EXPECT_EQ(other.lengths.size(), 1u);
}

}  // namespace
}  // namespace thinwire
