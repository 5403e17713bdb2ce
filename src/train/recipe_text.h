// Recipes as text: for agreement between ranks, for people, and for checkpoints.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "thinwire/trainer.h"

namespace thinwire {

// One "key=value" per line, without the keys of section "run": those may differ between ranks.
std::string agreement_text(const Recipe& recipe);

// The recipe of an agreement text. Keys that it does not have, those of "run" among them, get their
// defaults. Errors start with `origin`.
Result<Options> read_agreement(const std::string& origin, std::string_view text);

// A recipe file with every key spelt out; trains the same when given back.
std::string recipe_toml(const Recipe& recipe);

// Keys with another value than before, as "train.batch: 64 before, 128 now".
struct RecipeChanges {
  std::vector<std::string> forbidden;  // what was saved would mean something else
  std::vector<std::string> allowed;    // longer training, another schedule, other tests
};

// Compares two agreement texts.
RecipeChanges compare_recipes(std::string_view before, std::string_view now);

}  // namespace thinwire
