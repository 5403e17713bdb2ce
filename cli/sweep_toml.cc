// Checks the types of a sweep file's parts, and words the complaints.
// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/recipe_toml.h"
#include "cli/text.h"

namespace thinwire::cli {

void SweepToml::fail(const toml::node& at, const std::string& why) const {
  throw Error(ErrorCode::kBadOption, fmt::format("{}:{}: {}", path_, at.source().begin.line, why));
}

void SweepToml::check_keys(const toml::table& table, const std::vector<std::string>& known) const {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error(
          ErrorCode::kUnknownName,
          fmt::format("{}:{}: unknown key '{}'{} (known: {})", path_, key.source().begin.line, name,
                      did_you_mean(name, known), join(known, ", ")));
  }
}

std::string SweepToml::text(const toml::table& table, const char* key,
                            const std::string& otherwise) const {
  const toml::node* node = table.get(key);
  if (node == nullptr) return otherwise;
  if (!node->is_string()) fail(*node, fmt::format("'{}' must be text in quotes", key));
  return node->ref<std::string>();
}

std::vector<int64_t> SweepToml::seeds(const toml::table& table,
                                      std::vector<int64_t> otherwise) const {
  const toml::node* node = table.get("seeds");
  if (node == nullptr) return otherwise;
  std::vector<int64_t> seeds;
  const toml::array* list = node->as_array();
  if (list == nullptr || list->empty()) fail(*node, "'seeds' must be a list, as in [1, 2, 3]");
  for (const toml::node& item : *list) {
    if (!item.is_integer()) fail(item, "'seeds' must be whole numbers");
    seeds.push_back(item.ref<int64_t>());
  }
  return seeds;
}

Settings SweepToml::settings(const toml::node& node, const std::string& what) const {
  const toml::table* table = node.as_table();
  if (table == nullptr)
    fail(node,
         fmt::format("'{}' must be a table of settings, as in {{\"train.epochs\" = 5}}", what));
  Written written = settings_of(*table, path_, keys_);
  written.status().or_throw();
  return std::move(written.settings);
}

Settings SweepToml::settings_and_workers(const toml::table& table) const {
  Settings all;
  if (const toml::node* node = table.get("workers")) all.push_back(setting("run.workers", *node));
  if (const toml::node* node = table.get("settings")) append(all, settings(*node, "settings"));
  return all;
}

Setting SweepToml::setting(const std::string& key, const toml::node& value) const {
  return setting_of(key, value, path_, keys_).value();
}

}  // namespace thinwire::cli
