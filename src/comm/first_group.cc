// Names the workers without which a run does not begin.
// SPDX-License-Identifier: Apache-2.0
#include "comm/first_group.h"

namespace thinwire {

std::string first_group_without(const std::vector<int>& missing, size_t workers) {
  std::string names;
  for (const int worker : missing) names += (names.empty() ? "" : ", ") + std::to_string(worker);
  return "members: the run begins with all " + std::to_string(workers) + " workers, but " + names +
         " left or did not come in time";
}

}  // namespace thinwire
