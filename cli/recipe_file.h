// Recipes from TOML files and --set: every complaint names the place, the key and the choices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/options.h"
#include "thinwire/status.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {

// One key and its text, checked against the table, and where the user wrote it.
struct Setting {
  std::string key;     // "train.epochs"
  std::string value;   // as parse_options takes it; lists are joined by ';'
  std::string origin;  // "recipes/demo.toml:12" or "--set"
};

// A whole file. Fails with its name.
Result<std::string> read_text(const std::string& path);

// The settings of the TOML file at `path`: each key of a section becomes "section.key".
Result<std::vector<Setting>> read_recipe(const std::string& path, std::span<const OptionInfo> keys);

// The same from the text of a file; `path` is for messages.
Result<std::vector<Setting>> parse_recipe(std::string_view toml, const std::string& path,
                                          std::span<const OptionInfo> keys);

// "train.epochs=3". Only the first = separates, so that codecs can be given.
Result<Setting> parse_set(std::string_view argument, std::span<const OptionInfo> keys);

// The setting that chooses a codec, from an argument called `origin`.
Result<Setting> codec_setting(std::string_view codec, std::string_view origin,
                              std::span<const OptionInfo> keys);

using FindFault = std::function<std::optional<RecipeFault>(const Options&)>;

// Puts them together; of several for one key the last counts. What `check_together` finds wrong is said
// to be where the key to blame was written.
Result<Recipe> make_recipe(std::string name, std::span<const Setting> settings,
                           std::span<const OptionInfo> keys,
                           const FindFault& check_together = nullptr);

}  // namespace thinwire::cli
