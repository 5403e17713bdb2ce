// Settings inside other TOML files: those of a sweep's variants and axes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <toml++/toml.h>

#include <span>
#include <string>

#include "cli/recipe_file.h"

namespace thinwire::cli {

// One key and its value, checked against the table. `path` is for messages, which name the line
// too.
Result<Setting> setting_of(const std::string& key, const toml::node& node, const std::string& path,
                           std::span<const OptionInfo> keys);

// Those of a table that has "section.key", or sections with keys.
Written settings_of(const toml::table& table, const std::string& path,
                    std::span<const OptionInfo> keys);

}  // namespace thinwire::cli
