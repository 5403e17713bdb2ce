// Options: settings written as text, `name:key=value,key=value`, and checked against a table that
// describes them.
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
// not in the table or has another type, which is a mistake in the program and not of the user.
class Options {
 public:
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;  // kInteger too
  bool flag(std::string_view name) const;
  const std::string& text(std::string_view name) const;  // kChoice and kText

  // kNumbers: written "80;120", or with commas if the text holds only one option. May be empty.
  const std::vector<double>& numbers(std::string_view name) const;

  // The text "key=value,key=value" with every option in the order of the table: equal settings give
  // equal text.
  std::string canonical() const;

  // The value of one option in that text, whatever its type.
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
// the key, its allowed values, and the known keys.
Result<Options> parse_options(std::string_view origin, std::span<const OptionInfo> table,
                              std::span<const std::pair<std::string, std::string>> given);

// A name and its settings, split but not yet checked.
struct SpecText {
  std::string name;
  std::vector<std::pair<std::string, std::string>> settings;
};

// Splits `name:key=value,key=value`. Errors call it by `what`, for example "codec".
Result<SpecText> parse_spec(std::string_view what, std::string_view text);

}  // namespace thinwire
