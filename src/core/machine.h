// The machine on which a run runs, for its summary.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace thinwire {

// "AMD EPYC 7763 64-Core Processor"; "unknown" where the system does not tell.
std::string processor_model();

// Cores that this process may run on; at least 1.
int available_cores();

// Cores of the machine; at least 1.
int machine_cores();

}  // namespace thinwire
