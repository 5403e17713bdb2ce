// Combines the variants of a sweep with the points of its grid.
// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/text.h"

namespace thinwire::cli {
namespace {

std::vector<Choice> read_variants(const SweepToml& from, const toml::table& file) {
  const toml::node* node = file.get("variants");
  if (node == nullptr) return {Choice{}};
  const toml::table* table = node->as_table();
  if (table == nullptr || table->empty())
    from.fail(*node, "'variants' must be sections: [variants.NAME]");
  // In the order they were written: a TOML table keeps none.
  std::vector<std::pair<toml::source_position, Choice>> found;
  for (const auto& [key, value] : *table)
    found.emplace_back(key.source().begin, Choice{std::string(key.str()), std::string(key.str()),
                                                  from.settings(value, std::string(key.str()))});
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Choice> choices;
  for (auto& [position, choice] : found) choices.push_back(std::move(choice));
  return choices;
}

void add_axes(const SweepToml& from, const toml::table& table, const std::string& prefix,
              std::vector<Settings>& axes) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (const toml::table* section = node.as_table()) {
      add_axes(from, *section, key + ".", axes);
      continue;
    }
    const toml::array* list = node.as_array();
    if (list == nullptr || list->empty())
      from.fail(node, fmt::format("'{}' must be a list of values", key));
    Settings& axis = axes.emplace_back();
    for (const toml::node& item : *list) axis.push_back(from.setting(key, item));
  }
}

// Every combination of the axes' values, the last axis fastest.
std::vector<Choice> read_grid(const SweepToml& from, const toml::table& file) {
  std::vector<Choice> points = {Choice{}};
  const toml::node* node = file.get("grid");
  if (node == nullptr) return points;
  const toml::table* table = node->as_table();
  if (table == nullptr)
    from.fail(*node, "'grid' must be a section of lists, as in \"optimizer.lr\" = [0.1, 0.2]");
  std::vector<Settings> axes;
  add_axes(from, *table, "", axes);
  for (const Settings& axis : axes) {
    std::vector<Choice> longer;
    for (const Choice& point : points)
      for (const Setting& setting : axis) {
        Choice& next = longer.emplace_back(point);
        const std::string short_key = setting.key.substr(setting.key.rfind('.') + 1);
        next.name +=
            fmt::format("{}{} {}", point.name.empty() ? "" : ", ", short_key, setting.value);
        next.settings.push_back(setting);
      }
    points = std::move(longer);
  }
  return points;
}

}  // namespace

bool is_named(const Choice& choice, const std::string& name) {
  return choice.name == name || choice.variant == name;
}

std::vector<Choice> read_choices(const SweepToml& from, const toml::table& file) {
  std::vector<Choice> choices;
  const std::vector<Choice> points = read_grid(from, file);
  for (const Choice& variant : read_variants(from, file))
    for (const Choice& point : points) {
      Choice& both = choices.emplace_back(variant);
      both.name += (variant.name.empty() || point.name.empty() ? "" : ", ") + point.name;
      append(both.settings, point.settings);
    }
  return choices;
}

void require_choice(const SweepToml& from, const toml::node& at, const std::string& name,
                    const std::vector<Choice>& all) {
  std::vector<std::string> known;
  for (const Choice& choice : all) {
    if (is_named(choice, name)) return;
    known.push_back(choice.name);
  }
  from.fail(at, fmt::format("unknown variant '{}'{} (variants: {})", name,
                            did_you_mean(name, known), join(known, ", ")));
}

std::vector<Choice> choose(const SweepToml& from, const toml::node& names,
                           const std::vector<Choice>& all) {
  const toml::array* list = names.as_array();
  if (list == nullptr || list->empty()) from.fail(names, "'variants' must be a list of names");
  std::vector<Choice> some;
  for (const toml::node& item : *list) {
    const std::string name = item.value_or(std::string());
    require_choice(from, item, name, all);
    for (const Choice& choice : all)
      if (is_named(choice, name)) some.push_back(choice);
  }
  return some;
}

}  // namespace thinwire::cli
