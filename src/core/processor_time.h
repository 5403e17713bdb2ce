// Seconds of a processor that the calling thread has used since something began.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>

namespace thinwire {

// Unlike ElapsedTime it leaves out what other threads do on the same core, and waits.
class ProcessorTime {
 public:
  double seconds() const { return now() - start_; }

 private:
  static double now() {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
  }

  double start_ = now();
};

}  // namespace thinwire
