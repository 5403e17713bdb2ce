// Settings written as text, `name:key=value,key=value`, checked against a table that describes
// them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {

enum class OptionType : uint8_t { kInteger, kNumber, kChoice, kFlag, kText, kNumbers };

// One row of a table of options. Tables are static; every view in them outlives the program.
struct OptionInfo {
  std::string_view name;
  OptionType type = OptionType::kText;
  std::string_view fallback;                   // the default, as a user would write it
  double min = -1e300;                         // inclusive, for kInteger, kNumber and kNumbers
  double max = 1e300;                          // inclusive
  std::vector<std::string_view> choices = {};  // for kChoice
  std::string_view unit = {};  // "values", "steps", "fraction"; empty if it has none
  std::string_view help = {};  // one phrase
};

// Checked values of all options of one table. The getters throw Error(kContract) for a name that is
// not in the table or has another type: that is a mistake in the program, not of the user.
class Options {
 public:
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;  // kInteger too
  bool flag(std::string_view name) const;
  const std::string& text(std::string_view name) const;  // kChoice and kText

  // kNumbers: written "80;120", or with commas where a text holds one option only; may be empty.
  const std::vector<double>& numbers(std::string_view name) const;

  // "key=value,key=value" with every option in table order: equal settings give equal text.
  std::string canonical() const;

  // The value part of one option there, whatever its type.
  const std::string& canonical(std::string_view name) const;

 private:
  friend Result<Options> parse_options(std::string_view origin, std::span<const OptionInfo> table,
                                       std::span<const std::pair<std::string, std::string>> given);
  struct Value {
    OptionType type;
    std::string text;
    double number = 0;
    std::vector<double> numbers = {};
  };
  const Value& find(std::string_view name) const;

  std::vector<std::string> order_;
  std::map<std::string, Value, std::less<>> values_;
};

// Checks `given` against the table and fills in the defaults. Errors start with `origin` and name
// the key, what it may be, and the known keys.
Result<Options> parse_options(std::string_view origin, std::span<const OptionInfo> table,
                              std::span<const std::pair<std::string, std::string>> given);

// A name and its settings, taken apart but not yet checked.
struct SpecText {
  std::string name;
  std::vector<std::pair<std::string, std::string>> settings;
};

// Takes `name:key=value,key=value` apart. `what` names the kind of thing in errors ("codec").
Result<SpecText> parse_spec(std::string_view what, std::string_view text);

}  // namespace thinwire
