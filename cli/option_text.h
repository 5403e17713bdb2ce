// Tables of options as lines of text: for thinwire codecs and for the keys of recipes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/terminal.h"
#include "thinwire/options.h"

namespace thinwire::cli {

std::string_view type_name(OptionType type);

// "fraction, 0 to 1": the unit and what may be written; empty when anything may.
std::string describe_range(const OptionInfo& option);

enum class Detail { kChoices, kRanges };

// For every option a line, name=default and what it is, and below it its choices, or its range
// whatever the type. Each line starts with `indent` blanks.
std::string describe_options(std::span<const OptionInfo> options, Detail detail, size_t indent,
                             const Terminal& terminal);

}  // namespace thinwire::cli
