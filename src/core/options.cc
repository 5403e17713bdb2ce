// Checks settings against their table of options, and words the errors.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/check.h"
#include "core/named_row.h"
#include "core/number_text.h"
#include "thinwire/near_miss.h"

namespace thinwire {
namespace {

std::string range_of(const OptionInfo& info) {
  const bool low = info.min > -1e300, high = info.max < 1e300;
  if (low && high) return " from " + shortest(info.min) + " to " + shortest(info.max);
  if (low) return " of at least " + shortest(info.min);
  if (high) return " of at most " + shortest(info.max);
  return "";
}

// What the option may be, with a guess at what `text` was to say.
std::string expected(const OptionInfo& info, const std::string& text) {
  switch (info.type) {
    case OptionType::kInteger:
      return "a whole number" + range_of(info);
    case OptionType::kNumber:
      return "a number" + range_of(info);
    case OptionType::kNumbers:
      return "numbers, separated by ';'," + range_of(info);
    case OptionType::kChoice: {
      const std::vector<std::string> names(info.choices.begin(), info.choices.end());
      std::string choices;
      for (const std::string& name : names) choices += (choices.empty() ? "" : ", ") + name;
      return "one of: " + choices + did_you_mean(text, names);
    }
    case OptionType::kFlag:
      return "true or false";
    case OptionType::kText:
      return "text";
  }
  return "text";
}

bool parse_number(std::string_view text, double& number) {
  const auto end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  return result.ec == std::errc() && result.ptr == end && std::isfinite(number);
}

bool in_range(const OptionInfo& info, double number) {
  return number >= info.min && number <= info.max;
}

bool parse_numbers(const OptionInfo& info, std::string& text, std::vector<double>& numbers) {
  std::string canonical;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find_first_of(",;"), rest.size());
    double number = 0;
    if (!parse_number(rest.substr(0, end), number) || !in_range(info, number)) return false;
    if (end + 1 == rest.size()) return false;  // nothing after the separator
    canonical += (canonical.empty() ? "" : ";") + shortest(number);
    numbers.push_back(number);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  text = canonical;
  return true;
}

// Brings `text` into canonical form; false when it is not what the row asks for.
bool check(const OptionInfo& info, std::string& text, double& number,
           std::vector<double>& numbers) {
  switch (info.type) {
    case OptionType::kInteger:
      if (!parse_number(text, number) || number != std::floor(number) || std::abs(number) > 0x1p53)
        return false;
      text = std::to_string(static_cast<int64_t>(number));
      return in_range(info, number);
    case OptionType::kNumber:
      if (!parse_number(text, number)) return false;
      text = shortest(number);
      return in_range(info, number);
    case OptionType::kNumbers:
      return parse_numbers(info, text, numbers);
    case OptionType::kChoice:
      return std::find(info.choices.begin(), info.choices.end(), text) != info.choices.end();
    case OptionType::kFlag:
      number = text == "true";
      return text == "true" || text == "false";
    case OptionType::kText:
      return true;
  }
  return false;
}

}  // namespace

const Options::Value& Options::find(std::string_view name) const {
  const auto found = values_.find(name);
  THINWIRE_CHECK(found != values_.end(), "options: no option '" + std::string(name) + "'");
  return found->second;
}

int64_t Options::integer(std::string_view name) const {
  const Value& value = find(name);
  THINWIRE_CHECK(value.type == OptionType::kInteger, "options: not an integer");
  return static_cast<int64_t>(value.number);
}

double Options::number(std::string_view name) const {
  const Value& value = find(name);
  THINWIRE_CHECK(value.type == OptionType::kNumber || value.type == OptionType::kInteger,
                 "options: not a number");
  return value.number;
}

bool Options::flag(std::string_view name) const {
  const Value& value = find(name);
  THINWIRE_CHECK(value.type == OptionType::kFlag, "options: not a flag");
  return value.number != 0;
}

const std::string& Options::text(std::string_view name) const {
  const Value& value = find(name);
  THINWIRE_CHECK(value.type == OptionType::kChoice || value.type == OptionType::kText,
                 "options: not a text");
  return value.text;
}

const std::vector<double>& Options::numbers(std::string_view name) const {
  const Value& value = find(name);
  THINWIRE_CHECK(value.type == OptionType::kNumbers, "options: not a list of numbers");
  return value.numbers;
}

const std::string& Options::canonical(std::string_view name) const { return find(name).text; }

std::string Options::canonical() const {
  std::string text;
  for (const std::string& name : order_) {
    if (!text.empty()) text += ',';
    text += name + '=' + values_.find(name)->second.text;
  }
  return text;
}

Result<Options> parse_options(std::string_view origin, std::span<const OptionInfo> table,
                              std::span<const std::pair<std::string, std::string>> given) {
  const std::string prefix = std::string(origin) + ": ";

  Options options;
  for (const OptionInfo& info : table) {
    Options::Value value{.type = info.type, .text = std::string(info.fallback)};
    THINWIRE_CHECK(
        check(info, value.text, value.number, value.numbers),
        prefix + "the default of '" + std::string(info.name) + "' does not fit its own row");
    options.order_.emplace_back(info.name);
    options.values_.emplace(info.name, std::move(value));
  }
  std::vector<std::string_view> seen;
  for (const auto& [key, text] : given) {
    auto row = find_row(table, "option", key, prefix);
    if (!row) return row.status();
    const OptionInfo* const info = row.value();
    if (std::find(seen.begin(), seen.end(), key) != seen.end())
      return Status::fail(ErrorCode::kBadOption, prefix + "option '" + key + "' is given twice");
    seen.push_back(key);
    Options::Value value{.type = info->type, .text = text};
    if (!check(*info, value.text, value.number, value.numbers))
      return Status::fail(ErrorCode::kBadOption, prefix + "option '" + key + "' is '" + text +
                                                     "', but must be " + expected(*info, text));
    options.values_.find(key)->second = std::move(value);
  }
  return options;
}

Result<SpecText> parse_spec(std::string_view what, std::string_view text) {
  const auto fail = [&](const std::string& why) {
    return Status::fail(ErrorCode::kBadOption, std::string(what) + " '" + std::string(text) +
                                                   "': " + why +
                                                   "; write name or name:key=value,key=value");
  };
  const size_t colon = text.find(':');
  SpecText spec{.name = std::string(text.substr(0, colon)), .settings = {}};
  if (spec.name.empty()) return fail("the name is missing");
  if (colon == std::string_view::npos) return spec;
  std::string_view rest = text.substr(colon + 1);
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view setting = rest.substr(0, comma);
    const size_t equals = setting.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return fail("'" + std::string(setting) + "' is not key=value");
    spec.settings.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
    if (comma == std::string_view::npos) return spec;
    rest = rest.substr(comma + 1);
  }
}

}  // namespace thinwire
