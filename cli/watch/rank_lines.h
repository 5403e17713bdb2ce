// Lines about what a run does besides its steps: codecs, rounds, ranks and stages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.h"
#include "cli/watch/followed_run.h"

namespace thinwire::cli {

// As many of the fields as fit, two spaces before each but the first.
std::string fitted(const std::vector<std::string>& fields, size_t width);

// `width` columns, of which that part is full.
std::string bar(double part, size_t width, const Terminal& terminal);

// None for a single rank with one codec.
std::vector<std::string> more_lines(const FollowedRun& run, size_t width, const Terminal& terminal);

}  // namespace thinwire::cli
