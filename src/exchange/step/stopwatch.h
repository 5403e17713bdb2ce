// Stopwatch: measures how long a block of code takes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace thinwire {

using Clock = std::chrono::steady_clock;

// Adds the time until it is destroyed to `total`, in seconds.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total), since_(Clock::now()) {}
  ~Stopwatch() { total_ += std::chrono::duration<double>(Clock::now() - since_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total_;
  Clock::time_point since_;
};

}  // namespace thinwire
