// Writes recipes as text, and finds the differences between two.
// SPDX-License-Identifier: Apache-2.0
#include "train/recipe_text.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sync/round_terms.h"
#include "thinwire/synchroniser.h"
#include "thinwire/version.h"
#include "train/recipe_parts.h"

namespace thinwire {
namespace {

std::string_view section_of(std::string_view key) { return key.substr(0, key.find('.')); }

std::string toml_text(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      (out += '\\') += c;
    } else if (code < 0x20 || code == 0x7f) {
      ((out += "\\u00") += kHex[code >> 4]) += kHex[code & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string toml_value(OptionType type, const std::string& canonical) {
  if (type == OptionType::kText || type == OptionType::kChoice) return toml_text(canonical);
  if (type != OptionType::kNumbers) return canonical;
  std::string list = "[";
  for (const char c : canonical) list += c == ';' ? std::string(", ") : std::string(1, c);
  return list + "]";
}

// Whether it is "section.key=...".
bool begins_with_key(std::string_view line) {
  const std::string_view key = line.substr(0, line.find('='));
  return key.size() < line.size() && std::count(key.begin(), key.end(), '.') == 1 &&
         key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") == key.npos;
}

// The values by key. Other lines belong to the value before: checkpoints of earlier versions have
// texts of several lines as they were given.
std::map<std::string, std::string, std::less<>> lines_of(std::string_view text) {
  std::map<std::string, std::string, std::less<>> lines;
  auto last = lines.end();
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (begins_with_key(line) || last == lines.end()) {
      const size_t equals = std::min(line.find('='), line.size());
      last = lines.emplace(line.substr(0, equals), line.substr(std::min(equals + 1, line.size())))
                 .first;
    } else {
      last->second += ' ' + std::string(line);
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return lines;
}

// Rules mean the same with blanks between them as on lines of their own.
std::string in_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

bool may_change(std::string_view key) {
  static constexpr std::string_view kFixed[] = {
      "train.seed",          "train.batch",       "train.drop_last",
      "train.fixed_batches", "optimizer.name",    "optimizer.second_moment",
      "exchange.codec",      "exchange.feedback", "exchange.grouping",
      "exchange.momentum",   "exchange.rules",    "sync.method"};
  const std::string_view section = section_of(key);
  if (section == "pipeline")
    return key == "pipeline.order" || key == "pipeline.cache_budget_mb" ||
           key == "pipeline.spill_folder";
  return section != "data" && section != "model" && section != "tensor" &&
         std::find(std::begin(kFixed), std::end(kFixed), key) == std::end(kFixed);
}

// Rounds of some local methods have none. Earlier versions let recipes name one all the same.
bool has_memory(const std::string& method) {
  Result<RoundTerms> terms = round_terms({.method = method});
  return !terms || terms.value().exchange;
}

// The value that a run had whose checkpoint does not have the key yet.
std::string absent_value(std::string_view key) {
  if (key == "exchange.rules") return "";
  if (key == "optimizer.second_moment") return "mean";
  if (key == "optimizer.freeze_after") return "0.5";
  if (key == "exchange.inside") return "1";
  if (key == "exchange.combine") return "mean";
  if (key == "exchange.flush") return "off";
  if (key == "checkpoint.compress") return "exact";
  if (key == "checkpoint.keep") return "2";
  if (key == "pipeline.autoencoder") return "none";
  if (key == "data.wrong_labels" || key == "data.wrong_labels_seed") return "0";
  if (section_of(key) == "tensor")
    for (const OptionInfo& row : recipe_keys())
      if (row.name == key) return std::string(row.fallback);
  return key == "exchange.momentum" ? "optimizer" : "absent";
}

// The names of the memories that a recipe's run has; empty for one with faults, and for old texts
// that no longer are recipes.
std::string memories_of(std::string_view text) {
  Result<Options> recipe = read_agreement("before", text);
  if (!recipe || !find_faults(recipe.value()).empty()) return "";
  const ExchangeOptions options = exchange_options(recipe.value());
  const auto name = [](const std::string& spec) { return spec.substr(0, spec.find(':')); };
  std::string names = name(options.feedback);
  for (const TensorRule& rule : options.rules) names += ' ' + name(rule.feedback);
  return names;
}

// A local method with every option spelt out, as one text of it is as good as another. Other values
// are compared as they are.
std::string comparable(std::string_view key, const std::string& value) {
  if (key != "sync.method" || value.empty()) return value;
  auto method = find_synchroniser(value);
  if (!method) return value;
  return std::string(method.value().entry->name) + ':' + method.value().options.canonical();
}

}  // namespace

std::string agreement_text(const Recipe& recipe) {
  std::string text;
  for (const OptionInfo& row : recipe_keys())
    if (section_of(row.name) != "run")
      text += std::string(row.name) + '=' + in_one_line(recipe.options.canonical(row.name)) + '\n';
  return text;
}

Result<Options> read_agreement(const std::string& origin, std::string_view text) {
  const auto lines = lines_of(text);
  const std::vector<std::pair<std::string, std::string>> given(lines.begin(), lines.end());
  return parse_options(origin, recipe_keys(), given);
}

std::string recipe_toml(const Recipe& recipe) {
  std::string text =
      "# " + recipe.name + ", every key spelt out by thinwire " THINWIRE_VERSION "\n";
  std::string_view section;
  for (const OptionInfo& row : recipe_keys()) {
    if (section_of(row.name) != section) {
      section = section_of(row.name);
      text += "\n[" + std::string(section) + "]\n";
    }
    text += std::string(row.name.substr(section.size() + 1)) + " = " +
            toml_value(row.type, recipe.options.canonical(row.name)) + '\n';
  }
  return text;
}

RecipeChanges compare_recipes(std::string_view before, std::string_view now) {
  const auto old_lines = lines_of(before), new_lines = lines_of(now);
  const auto method = new_lines.find("sync.method");
  const bool lacks_memory = method != new_lines.end() && !has_memory(method->second);
  const auto second_moment = new_lines.find("optimizer.second_moment");
  const bool freezes = second_moment != new_lines.end() && second_moment->second == "frozen";
  RecipeChanges changes;
  const auto differ = [&](const std::string& key, const std::string& was, const std::string& is) {
    bool allowed = may_change(key) || (lacks_memory && key == "exchange.feedback");
    // Second moments that stay as they are were corrected for the bias that these two give.
    if (freezes && (key == "optimizer.beta2" || key == "optimizer.freeze_after")) allowed = false;
    // Where momentum begins, it may be in a memory that the run did not have.
    if (key == "optimizer.momentum" && was == "0" && memories_of(before) != memories_of(now))
      allowed = false;
    (allowed ? changes.allowed : changes.forbidden)
        .push_back(key + ": " + was + " before, " + is + " now");
  };
  for (const auto& [key, value] : new_lines) {
    const auto old = old_lines.find(key);
    const std::string was = old == old_lines.end() ? absent_value(key) : old->second;
    if (comparable(key, was) != comparable(key, value)) differ(key, was, value);
  }
  for (const auto& [key, value] : old_lines)
    if (!new_lines.contains(key)) differ(key, value, "absent");
  return changes;
}

}  // namespace thinwire
