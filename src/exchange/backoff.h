// How long to leave the core to others while there is nothing to do but look again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace thinwire {

// Zero (yield) for the first looks, so that short messages are met at once, then pauses that
// double. 200 us is what 25 kB take at 1 Gbit/s, far less than a socket buffers: the wire never
// runs dry.
class Backoff {
 public:
  std::chrono::microseconds next() noexcept {
    if (++looks_ <= kYields) return std::chrono::microseconds(0);
    pause_ = std::min(2 * pause_, kLongest);
    return pause_;
  }

  void reset() noexcept { *this = {}; }

 private:
  static constexpr int kYields = 30;
  static constexpr std::chrono::microseconds kLongest{200};

  int looks_ = 0;
  std::chrono::microseconds pause_{10};
};

}  // namespace thinwire
