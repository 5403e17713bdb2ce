// For tests of ranks that are lost: what the other ranks are told, and how soon.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/status.h"

namespace thinwire::testing {

// Machines that test are slow at times. Nothing here may take as long as the usual deadline.
inline constexpr std::chrono::seconds kLongDeadline{200};
inline constexpr std::chrono::seconds kSoon{100};

// Ranks that are threads, one of which is lost.
class LostRank {
 public:
  // -1: no rank is; then all are told.
  explicit LostRank(int lost) : lost_(lost) {}

  // Runs `body` on each of `ranks` ranks, and returns the texts of the Errors that it throws on the
  // others. The test fails unless all ranks end soon.
  std::vector<std::string> told(int ranks, const std::function<void(Group&)>& body) {
    std::mutex mutex;
    std::vector<std::string> messages;
    const auto since = std::chrono::steady_clock::now();
    try {
      run_local(ranks, [&](Group& group) {
        try {
          body(group);
        } catch (const Error& error) {
          if (group.rank() == lost_) throw;
          const std::lock_guard lock(mutex);
          messages.emplace_back(error.what());
          ++told_;
          throw;
        }
      });
    } catch (const std::exception&) {  // of one of the ranks
    }
    EXPECT_LT(std::chrono::steady_clock::now() - since, kSoon);
    return messages;
  }

  // Returns once `others` ranks were told, or when that should have happened long ago.
  void stall(int others) const {
    const auto until = std::chrono::steady_clock::now() + kSoon;
    while (told_ < others && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

 private:
  const int lost_;
  std::atomic<int> told_{0};
};

}  // namespace thinwire::testing
