// Checks of numbers on the command line, whose complaints say what may be written.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace thinwire::cli {

// The largest whole number that stays exact wherever numbers are kept as doubles, as in JSON.
inline constexpr uint64_t kLargestCount = uint64_t{1} << 53;

// A whole number in decimal digits.
CLI::Validator whole_number(uint64_t least, uint64_t most = kLargestCount);

// A finite number.
CLI::Validator number_between(double least, double most);
CLI::Validator positive_number();

}  // namespace thinwire::cli
