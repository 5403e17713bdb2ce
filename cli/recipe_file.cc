// From TOML to checked recipes.
// SPDX-License-Identifier: Apache-2.0
#include "cli/recipe_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "cli/recipe_toml.h"
#include "cli/text.h"
#include "thinwire/codec.h"
#include "thinwire/exchange.h"
#include "thinwire/feedback.h"
#include "thinwire/synchroniser.h"

namespace thinwire::cli {
namespace {

constexpr std::string_view kCodecKey = "exchange.codec";
constexpr std::string_view kFeedbackKey = "exchange.feedback";
constexpr std::string_view kSyncKey = "sync.method";

Status fail(ErrorCode code, const std::string& origin, const std::string& why) {
  return Status::fail(code, origin + ": " + why);
}

// "train" of "train.epochs"; empty for a key outside all sections.
std::string section_of(std::string_view key) {
  const size_t dot = key.find('.');
  return dot == key.npos ? "" : std::string(key.substr(0, dot));
}

std::vector<std::string> sections_of(std::span<const OptionInfo> keys) {
  std::vector<std::string> sections;
  for (const OptionInfo& row : keys)
    if (std::find(sections.begin(), sections.end(), section_of(row.name)) == sections.end())
      sections.push_back(section_of(row.name));
  return sections;
}

const OptionInfo* find_row(std::string_view key, std::span<const OptionInfo> keys) {
  const auto row =
      std::find_if(keys.begin(), keys.end(), [&](const OptionInfo& r) { return r.name == key; });
  return row == keys.end() ? nullptr : &*row;
}

Status unknown_section(const std::string& origin, const std::string& section,
                       std::span<const OptionInfo> keys) {
  const auto known = sections_of(keys);
  return fail(ErrorCode::kUnknownName, origin,
              fmt::format("unknown section '{}'{} (sections: {})", section,
                          did_you_mean(section, known), join(known, ", ")));
}

Status unknown_key(const std::string& origin, const std::string& key,
                   std::span<const OptionInfo> keys) {
  const std::string section = section_of(key);
  std::vector<std::string> all, beside;
  for (const OptionInfo& row : keys) {
    all.emplace_back(row.name);
    if (section_of(row.name) == section)
      beside.emplace_back(section.empty() ? row.name : row.name.substr(section.size() + 1));
  }
  if (section.empty()) {  // perhaps the right key without its section
    for (const std::string& known : all)
      if (known.ends_with("." + key))
        return fail(ErrorCode::kUnknownName, origin,
                    fmt::format("unknown key '{}'; did you mean '{}'?", key, known));
  }
  if (beside.empty()) return unknown_section(origin, section.empty() ? key : section, keys);
  return fail(ErrorCode::kUnknownName, origin,
              fmt::format("unknown key '{}'{} (keys of {}: {})", key, did_you_mean(key, all),
                          section, join(beside, ", ")));
}

Status check_codec(const Setting& setting) {
  const auto codec = scheduled_codecs(setting.value);
  if (codec) return Status::ok();
  return fail(codec.status().code(), setting.origin, codec.status().message());
}

Status check_feedback(const Setting& setting) {
  if (setting.value == "auto") return Status::ok();
  const auto feedback = make_feedback(setting.value, StreamSpec{});
  if (feedback) return Status::ok();
  return fail(feedback.status().code(), setting.origin,
              feedback.status().message() + " (auto: the codec's own)");
}

Status check_synchroniser(const Setting& setting) {
  if (setting.value.empty()) return Status::ok();
  const auto method = check_synchroniser_text(setting.value);
  if (method) return Status::ok();
  return fail(method.code(), setting.origin, method.message());
}

// Whether the table has the key and takes the value.
Status check(const Setting& setting, std::span<const OptionInfo> keys) {
  const OptionInfo* row = find_row(setting.key, keys);
  if (row == nullptr) return unknown_key(setting.origin, setting.key, keys);
  const std::pair<std::string, std::string> given[] = {{setting.key, setting.value}};
  const auto parsed = parse_options(setting.origin, std::span(row, 1), given);
  if (!parsed) return parsed.status();
  if (setting.key == kCodecKey) return check_codec(setting);
  if (setting.key == kFeedbackKey) return check_feedback(setting);
  if (setting.key == kSyncKey) return check_synchroniser(setting);
  return Status::ok();
}

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

// Appends the keys below `table`, whose own name is `prefix` ("train." or nothing).
Status flatten(const toml::table& table, const std::string& prefix, const std::string& path,
               std::span<const OptionInfo> keys, std::vector<Setting>& settings) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    const std::string origin = fmt::format("{}:{}", path, name.source().begin.line);
    if (const auto* section = node.as_table()) {
      const auto known = sections_of(keys);
      if (prefix.empty() && std::find(known.begin(), known.end(), key) == known.end())
        return unknown_section(origin, key, keys);
      if (Status status = flatten(*section, key + ".", path, keys, settings); !status)
        return status;
      continue;
    }
    auto setting = setting_of(key, node, path, keys);
    if (!setting) return setting.status();
    settings.push_back(std::move(setting).value());
  }
  return Status::ok();
}

}  // namespace

Result<Setting> setting_of(const std::string& key, const toml::node& node, const std::string& path,
                           std::span<const OptionInfo> keys) {
  const std::string origin = fmt::format("{}:{}", path, node.source().begin.line);
  const OptionInfo* row = find_row(key, keys);
  if (row == nullptr) return unknown_key(origin, key, keys);
  Setting setting{.key = key, .value = {}, .origin = origin};
  if (!to_text(node, row->type, setting.value))
    return fail(ErrorCode::kBadOption, origin,
                fmt::format("'{}' is {}, but must be {}", key, kind_of(node), wanted(row->type)));
  if (Status status = check(setting, keys); !status) return status;
  return setting;
}

Result<std::vector<Setting>> settings_of(const toml::table& table, const std::string& path,
                                         std::span<const OptionInfo> keys) {
  std::vector<Setting> settings;
  if (Status status = flatten(table, "", path, keys, settings); !status) return status;
  return settings;
}

Result<std::vector<Setting>> parse_recipe(std::string_view toml, const std::string& path,
                                          std::span<const OptionInfo> keys) {
  try {
    return settings_of(toml::parse(toml, path), path, keys);
  } catch (const toml::parse_error& error) {
    return fail(ErrorCode::kCorrupt, fmt::format("{}:{}", path, error.source().begin.line),
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
    return fail(ErrorCode::kIo, path, "cannot be read");
  return text.str();
}

Result<std::vector<Setting>> read_recipe(const std::string& path,
                                         std::span<const OptionInfo> keys) {
  auto text = read_text(path);
  if (!text) return text.status();
  return parse_recipe(text.value(), path, keys);
}

// Lists as in TOML: "[80, 120]" is "80;120".
void take_brackets(std::string& value) {
  if (!value.starts_with('[') || !value.ends_with(']')) return;
  value = value.substr(1, value.size() - 2);
  std::replace(value.begin(), value.end(), ',', ';');
  std::erase(value, ' ');
}

Result<Setting> parse_set(std::string_view argument, std::span<const OptionInfo> keys) {
  const size_t equals = argument.find('=');
  const std::string origin = fmt::format("--set {}", argument);
  if (equals == argument.npos || equals == 0)
    return fail(ErrorCode::kBadOption, origin, "write it as section.key=value");
  Setting setting{.key = std::string(argument.substr(0, equals)),
                  .value = std::string(argument.substr(equals + 1)),
                  .origin = origin};
  const OptionInfo* row = find_row(setting.key, keys);
  if (row != nullptr && row->type == OptionType::kNumbers) take_brackets(setting.value);
  if (Status status = check(setting, keys); !status) return status;
  return setting;
}

Result<Setting> codec_setting(std::string_view codec, std::string_view origin,
                              std::span<const OptionInfo> keys) {
  Setting setting{
      .key = std::string(kCodecKey), .value = std::string(codec), .origin = std::string(origin)};
  if (Status status = check(setting, keys); !status) return status;
  return setting;
}

Result<Recipe> make_recipe(std::string name, std::span<const Setting> settings,
                           std::span<const OptionInfo> keys, const FindFault& check_together) {
  std::map<std::string, std::string> last;
  for (const Setting& setting : settings) last[setting.key] = setting.value;
  const std::vector<std::pair<std::string, std::string>> given(last.begin(), last.end());
  auto options = parse_options(name, keys, given);
  if (!options) return options.status();
  const auto fault = check_together ? check_together(options.value()) : std::nullopt;
  if (fault) {
    const auto written = std::find_if(settings.rbegin(), settings.rend(),
                                      [&](const Setting& s) { return s.key == fault->key; });
    return fail(ErrorCode::kBadOption, written == settings.rend() ? name : written->origin,
                fmt::format("'{}': {}", fault->key, fault->status.message()));
  }
  return Recipe{.name = std::move(name), .options = std::move(options).value()};
}

}  // namespace thinwire::cli
