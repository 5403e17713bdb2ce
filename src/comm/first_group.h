// What workers that come and go are told when the group that begins a run is not complete.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace thinwire {

// "members: the run begins with all 4 workers, but 1, 3 left or did not come in time". REQUIRES:
// somebody is missing.
std::string first_group_without(const std::vector<int>& missing, size_t workers);

}  // namespace thinwire
