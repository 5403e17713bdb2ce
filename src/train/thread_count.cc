// Decides the number of threads: the recipe's, or the machine's share for each rank.
// SPDX-License-Identifier: Apache-2.0
#include "train/thread_count.h"

#include <algorithm>

#include "core/machine.h"

namespace thinwire {

int threads_of(const Options& recipe, const Group& group) {
  const auto given = static_cast<int>(recipe.integer("run.threads"));
  if (given != 0) return given;
  // Where mpirun binds ranks to cores, no more than those.
  return std::max(1, std::min(available_cores(), machine_cores() / group.size()));
}

}  // namespace thinwire
