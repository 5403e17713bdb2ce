// The answers of every codec to degenerate values, as a table on file: a changed answer is a diff.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace thinwire::samples {

// tests/golden/degenerate.csv: for every codec with its defaults the payload of the first step of no
// values, of one, and of 1000 (25 x 40 where the shape decides) that are all zero, all 0.5, all -0.5,
// denormal, at 0.4 of the largest float with either sign, and zero but for one. Columns: codec, input,
// bytes, arrives (how many of the values decode to something other than zero), error (largest
// difference from what was given over the largest magnitude given; 0 is exact, 1 where nothing comes).
std::string degenerate_answers();

}  // namespace thinwire::samples
