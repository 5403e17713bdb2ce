// The file that keeps what codecs cost on this machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "thinwire/step_plan.h"

namespace thinwire::cli {

// $XDG_CACHE_HOME/thinwire/costs.txt, or the same in ~/.cache; empty without either.
std::string usual_cost_file();

// The table in the file. An empty one for this machine if there is no such file, or if the usual file
// is of another processor. Throws UsageError for a file that holds something else.
CostTable read_costs(const std::string& path);

// Replaces the file, and makes its folder. Returns what is wrong, if it cannot.
Status write_costs(const std::string& path, const CostTable& costs);

}  // namespace thinwire::cli
