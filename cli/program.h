// The function that runs the program, for main functions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace thinwire::cli {

// All of thinwire: SIGINT and SIGTERM are watched from now on. Returns the exit code; what went
// wrong stands on stderr.
int run_program(int argc, char** argv);

}  // namespace thinwire::cli
