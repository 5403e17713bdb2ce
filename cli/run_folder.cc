// Looks for checkpoints, for the recipe of a run, and for the summary that says that it is
// finished.
// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/recipe_file.h"

namespace thinwire::cli {

namespace fs = std::filesystem;

namespace {

// Those that a run named by their steps; what somebody else called "checkpoint-before" is none.
std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  constexpr std::string_view kPrefix = "checkpoint-";
  std::vector<fs::path> found;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
        name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos)
      found.push_back(entry.path());
  }
  return found;
}

}  // namespace

bool is_checkpoint(const fs::path& folder) {
  std::error_code absent;
  return fs::exists(folder / "progress.json", absent);
}

bool is_unfinished(const fs::path& folder) {
  if (checkpoints_in(folder).empty()) return false;
  std::ifstream file(folder / "summary.json");
  const auto summary = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  return !(summary.is_object() && summary.value("finished", nlohmann::json()) == true);
}

std::string first_difference(
    const std::function<std::optional<std::string>(std::string_view key)>& before,
    const Recipe& recipe) {
  for (const OptionInfo& row : recipe_keys()) {
    if (row.name == "run.device") continue;
    const std::string was = before(row.name).value_or(std::string(row.fallback));
    const std::string& now = recipe.options.canonical(row.name);
    if (was != now) return fmt::format("{}: {} before, {} now", row.name, was, now);
  }
  return "";
}

std::string difference_to_unfinished(const fs::path& folder, const Recipe& recipe) {
  const std::string path = (folder / "recipe.toml").string();
  auto earlier = make_recipe(path, read_recipe(path, recipe_keys()), recipe_keys());
  if (!earlier) return "";
  return first_difference(
      [&](std::string_view key) -> std::optional<std::string> {
        const bool computes = !key.starts_with("checkpoint.") && key != "run.threads";
        return (computes ? earlier.value() : recipe).options.canonical(key);
      },
      recipe);
}

void remove_unfinished(const fs::path& folder) {
  for (const fs::path& checkpoint : checkpoints_in(folder)) {
    // In one step out of sight: what is half removed must not look like a checkpoint.
    const fs::path hidden = checkpoint.string() + ".old.tmp";
    std::error_code error;
    fs::remove_all(hidden, error);
    fs::rename(checkpoint, hidden, error);
    if (!error) fs::remove_all(hidden, error);
    if (error)
      throw Error(ErrorCode::kIo, checkpoint.string() + ": cannot be removed: " + error.message());
  }
}

}  // namespace thinwire::cli
