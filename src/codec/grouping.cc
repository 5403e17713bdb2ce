// The names of groupings: one table for recipes, C++ and Python.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/grouping.h"

#include <array>
#include <string>
#include <utility>

#include "thinwire/near_miss.h"

namespace thinwire {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::array<std::pair<Grouping, std::string_view>, 3> kNames = {
    {{Grouping::kTensor, "tensor"}, {Grouping::kModel, "model"}, {Grouping::kGlobal, "global"}}};

}  // namespace

std::string_view to_string(Grouping grouping) noexcept {
  for (const auto& [value, name] : kNames)
    if (value == grouping) return name;
  return "unknown";
}

std::vector<std::string_view> grouping_choices() {
  std::vector<std::string_view> choices = {kAuto};
  for (const auto& [value, name] : kNames) choices.push_back(name);
  return choices;
}

Result<std::optional<Grouping>> parse_grouping(std::string_view text) {
  if (text == kAuto) return std::optional<Grouping>();
  for (const auto& [value, name] : kNames)
    if (name == text) return std::optional<Grouping>(value);
  const std::vector<std::string_view> known = grouping_choices();
  const std::vector<std::string> names(known.begin(), known.end());
  return Status::fail(ErrorCode::kUnknownName,
                      "unknown grouping '" + std::string(text) + "'; " + known_names(text, names));
}

}  // namespace thinwire
