// Recipes from TOML files and --set: every complaint names the place, the key and the choices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/settings.h"
#include "thinwire/options.h"
#include "thinwire/status.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {

// A whole file. Fails with its name.
Result<std::string> read_text(const std::string& path);

// The settings of the TOML file at `path`: each key of a section becomes "section.key".
Written read_recipe(const std::string& path, std::span<const OptionInfo> keys);

// The same from the text of a file; `path` is for messages.
Written parse_recipe(std::string_view toml, const std::string& path,
                     std::span<const OptionInfo> keys);

// "train.epochs=3". Only the first = separates, so that codecs can be given.
Result<Setting> parse_set(std::string_view argument, std::span<const OptionInfo> keys);

// All arguments of --set.
Written parse_sets(std::span<const std::string> arguments, std::span<const OptionInfo> keys);

// The setting that chooses a codec, from an argument called `origin`.
Result<Setting> codec_setting(std::string_view codec, std::string_view origin,
                              std::span<const OptionInfo> keys);

// find_faults, or what stands for it.
using FindFaults = std::function<std::vector<RecipeFault>(const Options& options,
                                                          std::span<const std::string> unsure)>;

// Puts the settings together; of several for one key the last counts. Fails with all mistakes:
// those that were found before, and what `check_together` finds wrong with the rest, said to be
// where the key to blame was written.
Result<Recipe> make_recipe(std::string name, Written written, std::span<const OptionInfo> keys,
                           const FindFaults& check_together = nullptr);

}  // namespace thinwire::cli
