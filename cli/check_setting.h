// Checks a setting against a table of keys: every complaint names the place, the key and the
// choices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/settings.h"
#include "thinwire/options.h"

namespace thinwire::cli {

inline constexpr std::string_view kCodecKey = "exchange.codec";

// "train" of "train.epochs"; empty for a key outside all sections.
std::string section_of(std::string_view key);

std::vector<std::string> sections_of(std::span<const OptionInfo> keys);

// The row of a key; null where there is none.
const OptionInfo* find_row(std::string_view key, std::span<const OptionInfo> keys);

// What is said about a section and a key that the table does not have. `origin` is the place.
Status unknown_section(const std::string& origin, const std::string& section,
                       std::span<const OptionInfo> keys);
Status unknown_key(const std::string& origin, const std::string& key,
                   std::span<const OptionInfo> keys);

// Whether the table has the key and takes the value.
Status check_setting(const Setting& setting, std::span<const OptionInfo> keys);

}  // namespace thinwire::cli
