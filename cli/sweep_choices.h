// The choices of a sweep: its variants, with every point of its grid.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/sweep_toml.h"

namespace thinwire::cli {

// A variant at a point of the grid.
struct Choice {
  std::string variant;  // as the file calls it; empty where it has none
  std::string name;     // "a, lr 0.1": with the point
  Settings settings;
};

// All of the file's, variants in the order they were written. One choice without a name or settings
// where there are neither variants nor a grid.
std::vector<Choice> read_choices(const SweepToml& from, const toml::table& file);

// Those of `all` that the list `names`: a variant with all points of the grid, or one of them.
std::vector<Choice> choose(const SweepToml& from, const toml::node& names,
                           const std::vector<Choice>& all);

// Whether a name in the file means this choice: its own, or that of its variant.
bool is_named(const Choice& choice, const std::string& name);

// Fails where it means none of them.
void require_choice(const SweepToml& from, const toml::node& at, const std::string& name,
                    const std::vector<Choice>& all);

}  // namespace thinwire::cli
