// ThreadCount: the number of threads with which a rank computes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Parallel.h>

#include "thinwire/group.h"
#include "thinwire/options.h"
#include "thinwire/threads.h"

namespace thinwire {

// MKL 2024.2 chooses the code of its vector functions, such as libtorch's sqrt of contiguous
// floats, at the first call (mkl_vml_serv_cpu_detect). It writes a number of the processor into a
// variable and, a few instructions later, the number of the code into the same one. A thread that
// reads the variable in between computes that one call with other code, whose last bits differ.
// Ranks on threads then have different weights after a step of Adam. This function makes the first
// call while the other threads wait.
void settle_vector_functions();

// Threads of this rank's arithmetic, while it lives.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(at::get_num_threads()) {
    settle_vector_functions();
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
