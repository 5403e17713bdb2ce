// A followed run as lines of text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.h"
#include "cli/watch/followed_run.h"

namespace thinwire::cli {

// One line for a run that is finished, five or more for another. On a live terminal no line is as
// wide as that.
std::vector<std::string> lines_of(const FollowedRun& run, const Terminal& terminal);

// Values as a row of blocks of eight heights, or of letters where the terminal has no blocks; the
// largest is the highest. At most `width` columns: then each shows the mean of its neighbours.
std::string sparkline(const std::vector<double>& values, size_t width, const Terminal& terminal);

}  // namespace thinwire::cli
