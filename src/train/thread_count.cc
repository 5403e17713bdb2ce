// Decides the number of threads: the recipe's, or the machine's share for each rank. Readies
// libtorch for them.
// SPDX-License-Identifier: Apache-2.0
#include "train/thread_count.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/sqrt.h>

#include <algorithm>
#include <mutex>

#include "core/machine.h"

namespace thinwire {

void settle_vector_functions() {
  static std::once_flag once;
  std::call_once(once, [] { at::ones({1}).sqrt(); });
}

int threads_of(const Options& recipe, const Group& group) {
  const auto given = static_cast<int>(recipe.integer("run.threads"));
  if (given != 0) return given;
  // Where mpirun binds ranks to cores, no more than those.
  return std::max(1, std::min(available_cores(), machine_cores() / group.size()));
}

}  // namespace thinwire
