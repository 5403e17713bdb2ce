// What a run ran on, for its summary.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace thinwire {

// "AMD EPYC 7763 64-Core Processor"; "unknown" where the system does not tell.
std::string processor_model();

// Cores this process may use; at least 1.
int available_cores();

}  // namespace thinwire
