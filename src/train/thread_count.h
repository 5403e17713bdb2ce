// ThreadCount: the number of threads with which a rank computes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Parallel.h>

#include "thinwire/group.h"
#include "thinwire/options.h"
#include "thinwire/threads.h"

namespace thinwire {

// Threads of this rank's arithmetic, while it lives.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(at::get_num_threads()) {
    at::set_num_threads(count);
    if (count > 1) set_codec_threads(count);  // of all workers in this process
  }
  ~ThreadCount() { at::set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

// How many a worker has by its recipe, run.threads.
int threads_of(const Options& recipe, const Group& group);

}  // namespace thinwire
