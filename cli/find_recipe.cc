// Finds recipe files by path or by name.
// SPDX-License-Identifier: Apache-2.0
#include "cli/find_recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "cli/text.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> recipe_folders() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  return {program.parent_path() / THINWIRE_RECIPES_FROM_PROGRAM, THINWIRE_SOURCE_RECIPES};
}

std::vector<std::string> shipped_names() {
  std::vector<std::string> names;
  for (const fs::path& folder : recipe_folders()) {
    std::error_code absent;
    for (const auto& entry : fs::directory_iterator(folder, absent))
      if (entry.path().extension() == ".toml") names.push_back(entry.path().stem());
    if (!names.empty()) break;
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Result<std::string> find_recipe(const std::string& given) {
  std::error_code ignored;
  if (fs::is_regular_file(given, ignored)) return given;
  const bool bare = given.find('/') == given.npos && !given.ends_with(".toml");
  if (!bare) return Status::fail(ErrorCode::kIo, fmt::format("recipe '{}': no such file", given));
  for (const fs::path& folder : recipe_folders()) {
    const fs::path path = folder / (given + ".toml");
    if (fs::is_regular_file(path, ignored)) return fs::absolute(path).lexically_normal().string();
  }
  const auto names = shipped_names();
  return Status::fail(ErrorCode::kUnknownName,
                      fmt::format("no recipe '{}'{} (shipped: {}; or give a file)", given,
                                  did_you_mean(given, names), join(names, ", ")));
}

std::string recipe_name(const std::string& path) {
  const fs::path file = fs::absolute(path);
  // A run leaves its recipe under this name in a folder of its own.
  const bool of_run = file.filename() == "recipe.toml" && file.has_parent_path();
  return (of_run ? file.parent_path() : file).stem().string();
}

}  // namespace thinwire::cli
