// options.h: tables of OptionInfo as lists of dictionaries, which the package reads.
// SPDX-License-Identifier: Apache-2.0
#include "option_rows.h"

namespace nb = nanobind;

namespace thinwire::python {
namespace {

const char* type_name(OptionType type) {
  switch (type) {
    case OptionType::kInteger:
      return "integer";
    case OptionType::kNumber:
      return "number";
    case OptionType::kChoice:
      return "choice";
    case OptionType::kFlag:
      return "flag";
    case OptionType::kText:
      return "text";
    case OptionType::kNumbers:
      return "numbers";
  }
  return "text";
}

nb::object bound(double end, bool ended) { return ended ? nb::cast(end) : nb::none(); }

}  // namespace

nb::str to_str(std::string_view text) { return nb::str(text.data(), text.size()); }

nb::list option_rows(const std::vector<OptionInfo>& table) {
  nb::list rows;
  for (const OptionInfo& info : table) {
    nb::list choices;
    for (const std::string_view choice : info.choices) choices.append(to_str(choice));
    nb::dict row;
    row["name"] = to_str(info.name);
    row["type"] = type_name(info.type);
    row["default"] = to_str(info.fallback);
    row["min"] = bound(info.min, info.min > -1e300);
    row["max"] = bound(info.max, info.max < 1e300);
    row["choices"] = choices;
    row["unit"] = to_str(info.unit);
    row["help"] = to_str(info.help);
    rows.append(row);
  }
  return rows;
}

}  // namespace thinwire::python
