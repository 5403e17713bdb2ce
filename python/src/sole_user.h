// UseMark: refuses a second thread's use of an object that threads must not share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>

#include "thinwire/status.h"

namespace thinwire::python {

// One per object. Calls run without the GIL, so another thread may come in the middle of one.
class UseMark {
 public:
  // Until its end the caller is the object's only user. Throws Error(kContract) if it is not: to
  // wait would leave the order of two encodes, and so their bytes, to chance.
  class Guard {
   public:
    Guard(UseMark& mark, const char* what) : mark_(mark) {
      if (mark_.taken_.test_and_set(std::memory_order_acquire))
        throw Error(ErrorCode::kContract,
                    std::string(what) + ": another thread is using it; have one for each");
    }
    ~Guard() { mark_.taken_.clear(std::memory_order_release); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    UseMark& mark_;
  };

 private:
  std::atomic_flag taken_;
};

}  // namespace thinwire::python
