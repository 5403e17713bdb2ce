// The parts of a sweep's TOML file, each with its type checked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <toml++/toml.h>

#include <span>
#include <string>
#include <vector>

#include "cli/recipe_file.h"

namespace thinwire::cli {

using Settings = std::vector<Setting>;

// Reads parts of one file. What is wrong is thrown as Error, with file and line.
class SweepToml {
 public:
  // Both must outlive this. `path` is for messages.
  SweepToml(const std::string& path, std::span<const OptionInfo> keys) : path_(path), keys_(keys) {}

  [[noreturn]] void fail(const toml::node& at, const std::string& why) const;

  // Fails for a key that is not among the known ones.
  void check_keys(const toml::table& table, const std::vector<std::string>& known) const;

  std::string text(const toml::table& table, const char* key, const std::string& otherwise) const;
  std::vector<int64_t> seeds(const toml::table& table, std::vector<int64_t> otherwise) const;

  // One value of a recipe's key, and a table of them that is called `what`.
  Setting setting(const std::string& key, const toml::node& value) const;
  Settings settings(const toml::node& node, const std::string& what) const;

  // `workers` and `settings` of a table that may have them.
  Settings settings_and_workers(const toml::table& table) const;

 private:
  const std::string& path_;
  std::span<const OptionInfo> keys_;
};

inline void append(Settings& to, const Settings& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace thinwire::cli
