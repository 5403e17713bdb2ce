// --data: the folder in which a command looks for data sets first.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace thinwire::cli {

// Adds --data to `command`. `folder` receives what it says, or else THINWIRE_DATA, or else the
// default. A folder that was named must exist: otherwise parsing throws UsageError with the folder
// and the choices. The default need not exist.
void add_data_option(CLI::App& command, std::string& folder);

// Whether the command line has the option: the environment, which is for all commands, does not
// count.
bool gave_data(const CLI::App& command);

}  // namespace thinwire::cli
