// SerialThread: a thread that runs one job after the other, in order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace thinwire {

class SerialThread {
 public:
  SerialThread() : thread_([this] { run(); }) {}

  // Waits for the job under way; those behind it are not done.
  ~SerialThread() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      jobs_.clear();
    }
    changed_.notify_one();
    thread_.join();
  }
  SerialThread(const SerialThread&) = delete;
  SerialThread& operator=(const SerialThread&) = delete;

  // What `job` returns or throws. From one thread at a time.
  template <typename Job>
  auto post(Job job) {
    auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Job&>()>>(std::move(job));
    auto result = task->get_future();
    {
      const std::lock_guard lock(mutex_);
      jobs_.emplace_back([task] { (*task)(); });
    }
    changed_.notify_one();
    return result;
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return over_ || !jobs_.empty(); });
      if (over_) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace thinwire
