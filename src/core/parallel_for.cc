// A pool of threads that one call at a time may use.
// SPDX-License-Identifier: Apache-2.0
#include "core/parallel_for.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/check.h"
#include "core/named_thread.h"

namespace thinwire {
namespace {

std::atomic<int> wanted_threads{1};

struct Job {
  void (*call)(void*, size_t) = nullptr;
  void* context = nullptr;
  size_t parts = 0;
  std::atomic<size_t> next{0};

  void work() {
    for (size_t part; (part = next.fetch_add(1, std::memory_order_relaxed)) < parts;)
      call(context, part);
  }
};

// Threads are started when first needed, wait for the next job between two, and end with the
// process.
class Pool {
 public:
  // False, having done nothing, while it works for another thread.
  bool run(Job& job, size_t helpers) {
    const std::unique_lock owner(one_at_a_time_, std::try_to_lock);
    if (!owner) return false;
    start(helpers);
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      invited_ = std::min(helpers, started_);
    }
    job_came_.notify_all();
    job.work();
    std::unique_lock lock(mutex_);
    invited_ = 0;  // who has not come by now would find nothing to do
    all_left_.wait(lock, [&] { return at_work_ == 0; });
    return true;
  }

 private:
  // As many as there can be.
  void start(size_t helpers) {
    try {
      for (; started_ < helpers; ++started_) named_thread("tw-codec", [this] { serve(); }).detach();
    } catch (const std::system_error&) {
    }
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      job_came_.wait(lock, [&] { return invited_ > 0; });
      --invited_;
      ++at_work_;
      Job& job = *job_;
      lock.unlock();
      job.work();
      lock.lock();
      if (--at_work_ == 0) all_left_.notify_one();
    }
  }

  std::mutex one_at_a_time_;  // whose holder alone touches started_
  size_t started_ = 0;

  std::mutex mutex_;  // of all below
  std::condition_variable job_came_, all_left_;
  Job* job_ = nullptr;
  size_t invited_ = 0, at_work_ = 0;
};

std::atomic<Pool*> pool{nullptr};

// Never destroyed, as its threads go on to the end of the process. A forked process has none of
// them, and whatever state the pool was in.
Pool& the_pool() {
  static const bool made = [] {
    pool = new Pool;
    pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
    return true;
  }();
  (void)made;
  return *pool;
}

}  // namespace

void set_codec_threads(int count) {
  THINWIRE_CHECK(count >= 0, "set_codec_threads: a negative number of threads");
  if (count == 0) count = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  wanted_threads.store(count, std::memory_order_relaxed);
}

int codec_threads() noexcept { return wanted_threads.load(std::memory_order_relaxed); }

void run_parts(size_t parts, void (*call)(void* context, size_t part), void* context) noexcept {
  Job job{.call = call, .context = context, .parts = parts};
  const auto threads = static_cast<size_t>(codec_threads());
  if (parts < 2 || threads < 2 || !the_pool().run(job, std::min(threads, parts) - 1)) job.work();
}

}  // namespace thinwire
