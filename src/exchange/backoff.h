// How long to leave the core to others while there is nothing to do but look again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace thinwire {

// The first looks follow each other, so that a message on its way is met at once, then come naps that
// grow. 50 us are 6 kB at 1 Gbit/s, far less than a socket buffers: the wire never runs dry. Never
// sched_yield: on a busy core it hands over a whole time slice.
class Backoff {
 public:
  std::chrono::microseconds next() noexcept {
    ++looks_;
    return std::chrono::microseconds(std::clamp(looks_ - kSpins, 0, kLongest));
  }

  void reset() noexcept { looks_ = 0; }

 private:
  static constexpr int kSpins = 50;
  static constexpr int kLongest = 50;

  int looks_ = 0;
};

}  // namespace thinwire
