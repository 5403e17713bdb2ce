// Reads the rules of a recipe's exchange.
// SPDX-License-Identifier: Apache-2.0
#include "train/recipe_rules.h"

#include <algorithm>
#include <array>
#include <string>

namespace thinwire {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

Status refuse(const std::string& why) {
  return Status::fail(ErrorCode::kBadOption,
                      "exchange.rules: " + why +
                          "; write [[exchange.rules]] with pattern and codec, or \"{*.bias} fp32 "
                          "{head.*} int8 {method} gather\"");
}

Status set_key(TensorRule& rule, std::string_view key, const std::string& value) {
  if (key == "feedback") {
    rule.feedback = value;
  } else if (key == "method") {
    rule.method = value;
  } else {
    auto grouping = parse_grouping(value);
    if (!grouping) return refuse("rule '" + rule.pattern + "': " + grouping.status().message());
    rule.grouping = grouping.value();
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<TensorRule>> parse_rules(std::string_view text) {
  constexpr std::array<std::string_view, 3> kKeys = {"feedback", "method", "grouping"};
  std::vector<TensorRule> rules;
  for (text = trimmed(text); !text.empty();) {
    const size_t close = text.find('}');
    if (!text.starts_with('{') || close == std::string_view::npos)
      return refuse("'" + std::string(text) + "' begins with no name in braces");
    const std::string name(trimmed(text.substr(1, close - 1)));
    const size_t next = std::min(text.find('{', close), text.size());
    const std::string value(trimmed(text.substr(close + 1, next - close - 1)));
    text.remove_prefix(next);
    if (name.empty()) return refuse("a pattern is empty");
    const bool is_key = std::find(kKeys.begin(), kKeys.end(), name) != kKeys.end();
    if (value.empty())
      return refuse("'" + name + "' has no " + (is_key && !rules.empty() ? "value" : "codec"));
    if (!is_key || rules.empty()) {
      rules.push_back({.pattern = name, .codec = value});
    } else if (Status status = set_key(rules.back(), name, value); !status) {
      return status;
    }
  }
  return rules;
}

}  // namespace thinwire
