// The names of groupings: one table for recipes, C++ and Python.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/grouping.h"

#include <array>

#include "core/named_row.h"

namespace thinwire {
namespace {

struct Choice {
  std::string_view name;
  std::optional<Grouping> grouping;
};
constexpr auto kChoices = std::to_array<Choice>({{"auto", std::nullopt},
                                                 {"tensor", Grouping::kTensor},
                                                 {"model", Grouping::kModel},
                                                 {"global", Grouping::kGlobal}});

}  // namespace

std::string_view to_string(Grouping grouping) noexcept {
  for (const Choice& choice : kChoices)
    if (choice.grouping == grouping) return choice.name;
  return "unknown";
}

std::vector<std::string_view> grouping_choices() {
  std::vector<std::string_view> names;
  for (const Choice& choice : kChoices) names.push_back(choice.name);
  return names;
}

Result<std::optional<Grouping>> parse_grouping(std::string_view text) {
  auto found = find_row(kChoices, "grouping", text);
  if (!found) return found.status();
  return found.value()->grouping;
}

}  // namespace thinwire
