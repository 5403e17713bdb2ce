// A sweep: which runs of which recipes a TOML file asks for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/recipe_file.h"
#include "thinwire/options.h"
#include "thinwire/status.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {

// One run, checked: a recipe and what this run changes of it.
struct SweepRun {
  std::string name;     // of its folder; unlike all others'
  std::string of_case;  // empty where the file has none
  std::string variant;
  std::string
      compared_with;  // the variant that this one's differences are to; may be itself or empty
  int64_t seed = 0;
  std::string recipe_path;
  std::vector<Setting> changes;  // last word last; seed and workers included
  Recipe recipe;                 // resolved
};

struct Sweep {
  std::string title;
  std::vector<SweepRun> runs;
};

// The runs of the file at `path`, in the order they are to be made: all of the first seed, then all
// of the next. `sets` come after what the file says. docs/training.md has the form. Errors name
// file, line, key and choices; every run's recipe is checked.
Result<Sweep> read_sweep(const std::string& path, std::span<const Setting> sets,
                         std::span<const OptionInfo> keys);

// The same from text; `path` is for messages, and recipes beside it are found.
Result<Sweep> parse_sweep(std::string_view toml, const std::string& path,
                          std::span<const Setting> sets, std::span<const OptionInfo> keys);

}  // namespace thinwire::cli
