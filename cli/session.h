// What train and compare share: arguments, recipe, workers, and events that reach the screen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/progress.h"
#include "cli/workers.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {

struct RunArguments {
  std::string recipe;
  std::optional<int> workers;
  std::string data;
  std::string out;
  std::vector<std::string> sets;
};

void add_run_arguments(CLI::App& command, RunArguments& arguments);

// The recipe with the changes of --set, and with `codec`, if any, in place of its own. `workers` is
// how many there are, once that is known. Throws Error with all that is wrong with it, a line each.
Recipe load_recipe(const RunArguments& arguments, const std::string& codec = {},
                   std::optional<int> workers = {});

// Trains, shows progress on stderr (rank 0), and stops when the user asks.
RunSummary train_and_show(Workers& workers, const Recipe& recipe, const RunPlaces& places);

}  // namespace thinwire::cli
