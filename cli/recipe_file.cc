// Reads recipes from TOML files and --set, and checks them.
// SPDX-License-Identifier: Apache-2.0
#include "cli/recipe_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "cli/check_setting.h"
#include "cli/recipe_toml.h"
#include "cli/text.h"
#include "thinwire/near_miss.h"

namespace thinwire::cli {
namespace {

std::string kind_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return fmt::format("the text \"{}\"", node.ref<std::string>());
    case toml::node_type::integer:
      return fmt::format("the number {}", node.ref<int64_t>());
    case toml::node_type::floating_point:
      return fmt::format("the number {}", node.ref<double>());
    case toml::node_type::boolean:
      return node.ref<bool>() ? "true" : "false";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::table:
      return "a section";
    default:
      return "a date or time";
  }
}

// The value as text when its type is what the row asks for.
bool to_text(const toml::node& node, OptionType type, std::string& text) {
  if (const auto* array = node.as_array(); array != nullptr && type == OptionType::kNumbers) {
    std::vector<std::string> parts(array->size());
    for (size_t i = 0; i < parts.size(); ++i)
      if (!to_text(*array->get(i), OptionType::kNumber, parts[i])) return false;
    text = join(parts, ";");
    return true;
  }
  if (const auto* value = node.as_string()) {
    text = value->get();
    return type == OptionType::kText || type == OptionType::kChoice;
  }
  if (const auto* value = node.as_integer()) {
    text = std::to_string(value->get());
    return type == OptionType::kInteger || type == OptionType::kNumber;
  }
  if (const auto* value = node.as_floating_point()) {
    text = fmt::format("{}", value->get());
    return type == OptionType::kInteger || type == OptionType::kNumber;
  }
  if (const auto* value = node.as_boolean()) {
    text = value->get() ? "true" : "false";
    return type == OptionType::kFlag;
  }
  return false;
}

std::string_view wanted(OptionType type) {
  switch (type) {
    case OptionType::kInteger:
      return "a whole number";
    case OptionType::kNumber:
      return "a number";
    case OptionType::kFlag:
      return "true or false, without quotes";
    case OptionType::kNumbers:
      return "a list of numbers, as in [80, 120]";
    case OptionType::kChoice:
    case OptionType::kText:
      return "text in quotes";
  }
  return "text in quotes";
}

// A mistake and its line, to tell of mistakes in the order of the file: a TOML table has its keys
// in another.
using Lines = std::vector<std::pair<uint32_t, Mistake>>;

// Reads the keys below `table`, whose own name is `prefix` ("train." or nothing).
void flatten(const toml::table& table, const std::string& prefix, const std::string& path,
             std::span<const OptionInfo> keys, std::vector<Setting>& settings, Lines& mistakes) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    const uint32_t line = node.source().begin.line;
    if (const auto* section = node.as_table()) {
      const auto known = sections_of(keys);
      if (prefix.empty() && std::find(known.begin(), known.end(), key) == known.end())
        mistakes.emplace_back(
            line, Mistake{key, unknown_section(fmt::format("{}:{}", path, line), key, keys)});
      else
        flatten(*section, key + ".", path, keys, settings, mistakes);
      continue;
    }
    auto setting = setting_of(key, node, path, keys);
    if (setting)
      settings.push_back(std::move(setting).value());
    else
      mistakes.emplace_back(line, Mistake{key, setting.status()});
  }
}

Written refused(ErrorCode code, const std::string& origin, const std::string& why) {
  return {.settings = {}, .mistakes = {{"", Status::fail(code, origin + ": " + why)}}};
}

// Lists as in TOML: "[80, 120]" is "80;120".
void take_brackets(std::string& value) {
  if (!value.starts_with('[') || !value.ends_with(']')) return;
  value = value.substr(1, value.size() - 2);
  std::replace(value.begin(), value.end(), ',', ';');
  std::erase(value, ' ');
}

// The sections in which something was refused; none where it cannot be told which one was meant.
std::optional<std::vector<std::string>> unsure_of(const std::vector<Mistake>& mistakes,
                                                  std::span<const OptionInfo> keys) {
  const std::vector<std::string> known = sections_of(keys);
  std::vector<std::string> sections;
  for (const Mistake& mistake : mistakes) {
    sections.push_back(section_of(mistake.key));
    if (std::find(known.begin(), known.end(), sections.back()) == known.end()) return std::nullopt;
  }
  return sections;
}

// What the keys say together, each where the one to blame was written.
std::vector<Mistake> faults_of(const std::string& name, const Options& options,
                               const Written& written, std::span<const OptionInfo> keys,
                               const FindFaults& check_together) {
  std::vector<Mistake> mistakes;
  const auto unsure = unsure_of(written.mistakes, keys);
  if (!unsure || !check_together) return mistakes;
  for (const RecipeFault& fault : check_together(options, *unsure)) {
    const auto& settings = written.settings;
    const auto place = std::find_if(settings.rbegin(), settings.rend(),
                                    [&](const Setting& s) { return s.key == fault.key; });
    mistakes.push_back(
        {fault.key,
         Status::fail(ErrorCode::kBadOption,
                      fmt::format("{}: '{}': {}", place == settings.rend() ? name : place->origin,
                                  fault.key, fault.status.message()))});
  }
  return mistakes;
}

// [[exchange.rules]] as its key has them: "{*.bias} fp32 {method} gather".
Result<std::string> rules_text(const toml::array& rules, const std::string& path) {
  static constexpr std::array<std::string_view, 5> kKnown = {"pattern", "codec", "feedback",
                                                             "method", "grouping"};
  std::string text;
  for (const toml::node& node : rules) {
    const toml::table& rule = *node.as_table();
    const std::string origin = fmt::format("{}:{}", path, node.source().begin.line);
    const auto refuse = [&](const std::string& why) {
      return Status::fail(ErrorCode::kBadOption,
                          fmt::format("{}: exchange.rules: {}", origin, why));
    };
    for (const auto& [key, value] : rule) {
      const std::string name(key.str());
      if (std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end())
        return refuse(
            fmt::format("unknown key '{}'; {}", name,
                        known_names(name, std::vector<std::string>(kKnown.begin(), kKnown.end()))));
      const auto* content = value.as_string();
      if (content == nullptr || content->get().find_first_of("{}") != std::string::npos)
        return refuse(fmt::format("'{}' is {}, but must be text in quotes, without braces", name,
                                  kind_of(value)));
    }
    for (const char* needed : {"pattern", "codec"})
      if (rule[needed].value_or(std::string()).empty())
        return refuse(fmt::format("a rule has no {}", needed));
    text += fmt::format("{}{{{}}} {}", text.empty() ? "" : " ", rule["pattern"].value_or(""),
                        rule["codec"].value_or(""));
    for (const char* more : {"feedback", "method", "grouping"})
      if (const auto value = rule[more].value<std::string>())
        text += fmt::format(" {{{}}} {}", more, *value);
  }
  return text;
}

}  // namespace

Result<Setting> setting_of(const std::string& key, const toml::node& node, const std::string& path,
                           std::span<const OptionInfo> keys) {
  const std::string origin = fmt::format("{}:{}", path, node.source().begin.line);
  const OptionInfo* row = find_row(key, keys);
  if (row == nullptr) return unknown_key(origin, key, keys);
  Setting setting{.key = key, .value = {}, .origin = origin};
  if (const auto* rules = node.as_array(); key == "exchange.rules" && node.is_array_of_tables()) {
    Result<std::string> text = rules_text(*rules, path);
    if (!text) return text.status();
    setting.value = std::move(text.value());
    return setting;
  }
  if (!to_text(node, row->type, setting.value))
    return Status::fail(ErrorCode::kBadOption, fmt::format("{}: '{}' is {}, but must be {}", origin,
                                                           key, kind_of(node), wanted(row->type)));
  if (Status status = check_setting(setting, keys); !status) return status;
  return setting;
}

Written settings_of(const toml::table& table, const std::string& path,
                    std::span<const OptionInfo> keys) {
  Written written;
  Lines mistakes;
  flatten(table, "", path, keys, written.settings, mistakes);
  std::ranges::stable_sort(mistakes, {}, &Lines::value_type::first);
  for (auto& [line, mistake] : mistakes) written.mistakes.push_back(std::move(mistake));
  return written;
}

Written parse_recipe(std::string_view toml, const std::string& path,
                     std::span<const OptionInfo> keys) {
  try {
    return settings_of(toml::parse(toml, path), path, keys);
  } catch (const toml::parse_error& error) {
    return refused(ErrorCode::kCorrupt, fmt::format("{}:{}", path, error.source().begin.line),
                   "not valid TOML: " + std::string(error.description()));
  }
}

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  std::error_code absent;
  const bool empty = std::filesystem::is_empty(path, absent) &&
                     std::filesystem::is_regular_file(path, absent);  // copies as a failure
  if (!file || (!empty && !(text << file.rdbuf())))
    return Status::fail(ErrorCode::kIo, path + ": cannot be read");
  return text.str();
}

Written read_recipe(const std::string& path, std::span<const OptionInfo> keys) {
  auto text = read_text(path);
  if (!text) return {.settings = {}, .mistakes = {{"", text.status()}}};
  return parse_recipe(text.value(), path, keys);
}

Result<Setting> parse_set(std::string_view argument, std::span<const OptionInfo> keys) {
  const size_t equals = argument.find('=');
  const std::string origin = fmt::format("--set {}", argument);
  if (equals == argument.npos || equals == 0)
    return Status::fail(ErrorCode::kBadOption, origin + ": write it as section.key=value");
  Setting setting{.key = std::string(argument.substr(0, equals)),
                  .value = std::string(argument.substr(equals + 1)),
                  .origin = origin};
  const OptionInfo* row = find_row(setting.key, keys);
  if (row != nullptr && row->type == OptionType::kNumbers) take_brackets(setting.value);
  if (Status status = check_setting(setting, keys); !status) return status;
  return setting;
}

Written parse_sets(std::span<const std::string> arguments, std::span<const OptionInfo> keys) {
  Written written;
  for (const std::string& argument : arguments)
    written.add(argument.substr(0, argument.find('=')), parse_set(argument, keys));
  return written;
}

Result<Setting> codec_setting(std::string_view codec, std::string_view origin,
                              std::span<const OptionInfo> keys) {
  Setting setting{
      .key = std::string(kCodecKey), .value = std::string(codec), .origin = std::string(origin)};
  if (Status status = check_setting(setting, keys); !status) return status;
  return setting;
}

Result<Recipe> make_recipe(std::string name, Written written, std::span<const OptionInfo> keys,
                           const FindFaults& check_together) {
  std::map<std::string, std::string> last;
  for (const Setting& setting : written.settings) last[setting.key] = setting.value;
  const std::vector<std::pair<std::string, std::string>> given(last.begin(), last.end());
  auto options = parse_options(name, keys, given);
  if (!options) return options.status();
  std::ranges::move(faults_of(name, options.value(), written, keys, check_together),
                    std::back_inserter(written.mistakes));
  if (Status status = written.status(); !status) return status;
  return Recipe{.name = std::move(name), .options = std::move(options).value()};
}

}  // namespace thinwire::cli
