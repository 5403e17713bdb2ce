// named_thread: threads under a name that `top -H`, `ps -L` and debuggers show.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <thread>
#include <utility>

namespace thinwire {

// Runs `work` on a new thread. `name`: at most 15 characters, which is what the system keeps. The
// name is there when this returns.
template <typename Work>
std::thread named_thread(const char* name, Work work) {
  std::thread thread(std::move(work));
  (void)pthread_setname_np(thread.native_handle(), name);  // fails only where the thread is over
  return thread;
}

}  // namespace thinwire
