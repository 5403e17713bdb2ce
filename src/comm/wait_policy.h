// How long a thread that waits for messages sleeps between two looks at them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace thinwire {

// The nap after the `look`th look in a row that found nothing new, counted from 0.
//
// A message that is on its way arrives within microseconds, so the first looks follow each other
// without a nap. After that the thread waits for somebody's computation, and each look takes the
// core from it: a look of 1 us every 60 to 110 us (the kernel adds its timer slack of 50 us and
// more to a nap) costs it 1 to 2 %. 50 us are 6 kB at 1 Gbit/s, far less than a socket buffers, so
// the wire never runs dry. There is no sched_yield: on a busy core it gives away a whole time
// slice.
inline std::chrono::microseconds nap_after(int look) noexcept {
  constexpr int kLooks = 50;
  constexpr int kLongest = 50;
  return std::chrono::microseconds(std::clamp(look - kLooks, 0, kLongest));
}

}  // namespace thinwire
