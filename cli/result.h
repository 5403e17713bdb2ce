// Prints the results of a run in a few lines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/terminal.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {

// `out` is the folder with the run's files; empty when nothing was written.
std::string describe_result(const RunSummary& summary, const std::string& out,
                            const Terminal& terminal);

// One line about settings that train badly; empty when there is nothing to say.
std::string warn_about(const Recipe& recipe);

}  // namespace thinwire::cli
