// Reads a sweep's TOML file and lists its runs.
// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <utility>

#include "cli/exit_code.h"
#include "cli/find_recipe.h"
#include "cli/sweep_choices.h"
#include "cli/sweep_toml.h"

namespace thinwire::cli {
namespace {

const std::vector<std::string> kSweepKeys = {"title",    "about",    "recipe", "workers",
                                             "seeds",    "settings", "first",  "judge",
                                             "variants", "grid",     "cases"};
const std::vector<std::string> kCaseKeys = {"name",     "recipe",   "workers", "seeds",
                                            "settings", "variants", "changes"};

// Where the same variants are tried.
struct Case {
  std::string name;
  std::string recipe;
  std::vector<int64_t> seeds;
  Settings settings;
  std::vector<Choice> variants;  // changes included
};

// What all runs share.
struct Around {
  const SweepToml& from;
  const std::string& path;
  std::span<const Setting> sets;
  std::span<const OptionInfo> keys;
  std::string first = {};  // the variant that others are compared with
};

// "cnn7, 4 workers" and "leader" with seed 1: "cnn7-4-workers-leader-seed1".
std::string folder_name(const Case& of, const std::string& variant, int64_t seed) {
  std::string name;
  for (const std::string& part : {of.name, variant, fmt::format("seed{}", seed)})
    if (!part.empty()) name += (name.empty() ? "" : "-") + part;
  std::string clean;
  for (const char c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_';
    if (plain)
      clean += c;
    else if (!clean.ends_with('-'))
      clean += '-';
  }
  return clean;
}

// A case's own settings for some of its variants.
void apply_changes(const SweepToml& from, const toml::node& node, std::vector<Choice>& variants) {
  const toml::table* changes = node.as_table();
  if (changes == nullptr) from.fail(node, "'changes' must be sections of variants");
  for (const auto& [key, value] : *changes) {
    const std::string name(key.str());
    require_choice(from, value, name, variants);
    const Settings settings = from.settings(value, name);
    for (Choice& choice : variants)
      if (is_named(choice, name)) append(choice.settings, settings);
  }
}

Case read_case(const SweepToml& from, const toml::table& table, const Case& base) {
  from.check_keys(table, kCaseKeys);
  Case one = base;
  one.recipe = from.text(table, "recipe", base.recipe);
  if (one.recipe.empty())
    from.fail(table, "the case names no recipe, and the file has none for all");
  one.name = from.text(table, "name", recipe_name(one.recipe));
  one.seeds = from.seeds(table, base.seeds);
  append(one.settings, from.settings_and_workers(table));
  if (const toml::node* names = table.get("variants"))
    one.variants = choose(from, *names, base.variants);
  if (const toml::node* node = table.get("changes")) apply_changes(from, *node, one.variants);
  return one;
}

std::vector<Case> read_cases(const SweepToml& from, const toml::table& file, const Case& base) {
  const toml::node* node = file.get("cases");
  if (node == nullptr) {
    if (base.recipe.empty()) from.fail(file, "the file names no recipe");
    return {base};
  }
  const toml::array* list = node->as_array();
  if (list == nullptr || list->empty()) from.fail(*node, "'cases' must be sections: [[cases]]");
  std::vector<Case> cases;
  for (const toml::node& item : *list) {
    if (!item.is_table()) from.fail(item, "'cases' must be sections: [[cases]]");
    cases.push_back(read_case(from, *item.as_table(), base));
  }
  return cases;
}

// Recipes are found beside the sweep's file too.
std::string place_of(const std::string& recipe, const std::string& sweep) {
  const auto beside = std::filesystem::path(sweep).parent_path() / recipe;
  std::error_code absent;
  const bool is_file =
      recipe.ends_with(".toml") && std::filesystem::is_regular_file(beside, absent);
  return is_file ? beside.string() : or_usage_error(find_recipe(recipe));
}

// The first variant, at the same point of the grid unless it names one.
std::string compared_with(const Case& of, const Choice& variant, const std::string& first) {
  if (first.empty()) return "";
  for (const Choice& choice : of.variants)
    if (choice.name == first) return first;
  return first + variant.name.substr(variant.variant.size());
}

SweepRun make_run(const Around& around, const Case& of, const Choice& variant, int64_t seed) {
  SweepRun run{.name = folder_name(of, variant.name, seed),
               .of_case = of.name,
               .variant = variant.name,
               .compared_with = compared_with(of, variant, around.first),
               .seed = seed,
               .recipe_path = place_of(of.recipe, around.path),
               .changes = of.settings,
               .recipe = {}};
  append(run.changes, variant.settings);
  run.changes.push_back({"train.seed", std::to_string(seed), around.path});
  run.changes.insert(run.changes.end(), around.sets.begin(), around.sets.end());
  Written all = read_recipe(run.recipe_path, around.keys);
  append(all.settings, run.changes);
  run.recipe =
      make_recipe(recipe_name(run.recipe_path), std::move(all), around.keys, find_faults).value();
  return run;
}

std::vector<SweepRun> make_runs(const Around& around, const std::vector<Case>& cases) {
  size_t most = 0;
  for (const Case& one : cases) most = std::max(most, one.seeds.size());
  std::vector<SweepRun> runs;
  std::set<std::string> names;
  for (size_t i = 0; i < most; ++i)
    for (const Case& one : cases)
      for (const Choice& variant : one.variants) {
        if (i >= one.seeds.size()) continue;
        runs.push_back(make_run(around, one, variant, one.seeds[i]));
        if (!names.insert(runs.back().name).second)
          throw Error(ErrorCode::kBadOption,
                      fmt::format("{}: two runs are called '{}': name cases and variants apart",
                                  around.path, runs.back().name));
      }
  return runs;
}

Sweep read(Around around, const toml::table& file) {
  const SweepToml& from = around.from;
  from.check_keys(file, kSweepKeys);
  const Case base{.name = {},
                  .recipe = from.text(file, "recipe", ""),
                  .seeds = from.seeds(file, {1}),
                  .settings = from.settings_and_workers(file),
                  .variants = read_choices(from, file)};
  around.first = from.text(file, "first", "");
  if (!around.first.empty()) require_choice(from, *file.get("first"), around.first, base.variants);
  // For the pages of tools/study.py.
  if (const std::string judge = from.text(file, "judge", "error");
      judge != "error" && judge != "loss" && judge != "bytes")
    from.fail(*file.get("judge"),
              fmt::format("'judge' must be 'error', 'loss' or 'bytes', not '{}'", judge));
  return {.title = from.text(file, "title", std::filesystem::path(around.path).stem()),
          .runs = make_runs(around, read_cases(from, file, base))};
}

}  // namespace

Result<Sweep> parse_sweep(std::string_view toml, const std::string& path,
                          std::span<const Setting> sets, std::span<const OptionInfo> keys) {
  try {
    const SweepToml from(path, keys);
    return read({from, path, sets, keys}, toml::parse(toml, path));
  } catch (const toml::parse_error& error) {
    return Status::fail(ErrorCode::kCorrupt,
                        fmt::format("{}:{}: not valid TOML: {}", path, error.source().begin.line,
                                    error.description()));
  } catch (const Error& error) {
    return Status::fail(error.code(), error.what());
  }
}

Result<Sweep> read_sweep(const std::string& path, std::span<const Setting> sets,
                         std::span<const OptionInfo> keys) {
  auto text = read_text(path);
  if (!text) return text.status();
  return parse_sweep(text.value(), path, sets, keys);
}

}  // namespace thinwire::cli
