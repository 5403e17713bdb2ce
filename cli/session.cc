// Makes a run from the arguments of the command line.
// SPDX-License-Identifier: Apache-2.0
#include "cli/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/check_setting.h"
#include "cli/data_option.h"
#include "cli/exit_code.h"
#include "cli/find_recipe.h"
#include "cli/interrupt.h"
#include "cli/number_check.h"
#include "cli/option_text.h"
#include "cli/recipe_file.h"
#include "cli/result.h"
#include "thinwire/synchroniser.h"

namespace thinwire::cli {
namespace {

// Asynchronous workers have no step that all end together, after which they could stop.
bool can_stop_early(const Recipe& recipe) {
  const std::string& method = recipe.options.text("sync.method");
  if (method.empty()) return true;
  auto found = find_synchroniser(method);
  if (!found) return true;  // which the run will say
  const auto& rows = found.value().entry->options;
  const bool knows = std::any_of(rows.begin(), rows.end(),
                                 [](const OptionInfo& row) { return row.name == "asynchronous"; });
  return !knows || !found.value().options.flag("asynchronous");
}

}  // namespace

void add_run_arguments(CLI::App& command, RunArguments& arguments) {
  command.add_option("RECIPE", arguments.recipe, "A TOML file, or the name of a shipped recipe")
      ->required();
  command
      .add_option("--workers", arguments.workers,
                  "Threads that train together; else as many as run.workers says")
      ->check(whole_number(1, 1024))
      ->type_name("N");
  add_data_option(command, arguments.data);
  command.add_option("--out", arguments.out, "Folder for metrics, summary and checkpoints")
      ->type_name("DIR");
  command.add_option("--set", arguments.sets, "Change a key of the recipe; may be repeated")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command.footer("Keys of recipes and of --set, with their defaults:\n" +
                 describe_options(recipe_keys(), Detail::kChoices, 2, Terminal{}));
}

Recipe load_recipe(const RunArguments& arguments, const std::string& codec,
                   std::optional<int> workers) {
  const auto keys = recipe_keys();
  const std::string path = or_usage_error(find_recipe(arguments.recipe));
  Written written = read_recipe(path, keys);
  written.add(parse_sets(arguments.sets, keys));
  if (!codec.empty()) written.add(std::string(kCodecKey), codec_setting(codec, "--codecs", keys));
  if (workers)
    written.settings.push_back(
        {.key = "run.workers", .value = std::to_string(*workers), .origin = "--workers"});
  return or_usage_error(make_recipe(recipe_name(path), std::move(written), keys, find_faults));
}

RunSummary train_and_show(Workers& workers, const Recipe& recipe, const RunPlaces& places) {
  Progress progress(stderr, look_at(stderr));
  if (const std::string warning = warn_about(recipe); !warning.empty() && workers.rank() == 0)
    progress.note(warning);
  RunEvents events;
  events.step = [&](const StepEvent& event) { progress.step(event); };
  events.evaluation = [&](const EvaluationEvent& event) { progress.evaluation(event); };
  events.note = [&](std::string_view text) { progress.note(text); };
  events.stop = stop_requested;
  if (!can_stop_early(recipe)) announce_no_early_stop();
  return workers.train(recipe, places, events);
}

}  // namespace thinwire::cli
