// Writes tables of options as lines of text.
// SPDX-License-Identifier: Apache-2.0
#include "cli/option_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace thinwire::cli {
namespace {

constexpr double kUnlimited = 1e300;  // as OptionInfo has it
constexpr double kMany = 0x1p53;      // a limit of representation, not one to tell people

}  // namespace

std::string_view type_name(OptionType type) {
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

std::string describe_range(const OptionInfo& option) {
  std::string text(option.unit);
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  switch (option.type) {
    case OptionType::kChoice:
      add(fmt::format("{}", fmt::join(option.choices, " | ")));
      break;
    case OptionType::kFlag:
      add("true | false");
      break;
    case OptionType::kText:
      break;
    case OptionType::kInteger:
    case OptionType::kNumber:
    case OptionType::kNumbers: {
      const bool low = option.min > -kUnlimited, high = option.max < kMany;
      if (low && high) add(fmt::format("{} to {}", option.min, option.max));
      if (low && !high) add(fmt::format("at least {}", option.min));
      if (!low && high) add(fmt::format("at most {}", option.max));
      break;
    }
  }
  return text;
}

std::string describe_options(std::span<const OptionInfo> options, Detail detail, size_t indent,
                             const Terminal& terminal) {
  size_t width = 0;
  for (const OptionInfo& option : options)
    width = std::max(width, option.name.size() + 1 + option.fallback.size());
  std::string text;
  for (const OptionInfo& option : options) {
    const bool short_form = detail == Detail::kChoices && option.type != OptionType::kChoice;
    const std::string unit =
        short_form && !option.unit.empty() ? fmt::format(" ({})", option.unit) : "";
    text +=
        fmt::format("{:{}}{:<{}}  {}{}\n", "", indent,
                    fmt::format("{}={}", option.name, option.fallback), width, option.help, unit);
    if (short_form) continue;
    if (const std::string range = describe_range(option); !range.empty())
      text += fmt::format("{:{}}  {}\n", "", indent + width,
                          styled(terminal, Style::kFaint, "(" + range + ")"));
  }
  return text;
}

}  // namespace thinwire::cli
