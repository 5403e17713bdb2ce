// The table of feedback rules, and how a text becomes one of them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "feedback/feedback_rules.h"
#include "thinwire/near_miss.h"

namespace thinwire {

std::vector<const FeedbackEntry*> list_feedbacks() {
  return {&none_entry(), &residual_entry(), &lowpass_entry(), &dgc_memory_entry(),
          &ef21_entry(), &loco_entry(),     &efmixed_entry(), &momentum_entry(),
          &velocity_entry()};
}

Result<NamedFeedback> find_feedback(std::string_view spec) {
  Result<SpecText> text = parse_spec("feedback", spec);
  if (!text) return text.status();
  const std::string& name = text.value().name;
  const auto table = list_feedbacks();
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const FeedbackEntry* row) { return row->name == name; });
  if (found == table.end()) {
    std::vector<std::string> names;
    for (const FeedbackEntry* row : table) names.emplace_back(row->name);
    return Status::fail(ErrorCode::kUnknownName,
                        "unknown feedback '" + name + "'; " + known_names(name, names));
  }
  Result<Options> options =
      parse_options("feedback '" + name + "'", (*found)->options, text.value().settings);
  if (!options) return options.status();
  return NamedFeedback{.entry = *found, .options = std::move(options).value()};
}

Result<std::unique_ptr<Feedback>> make_feedback(std::string_view spec, const StreamSpec& stream) {
  Result<NamedFeedback> found = find_feedback(spec);
  if (!found) return found.status();
  return found.value().entry->make(found.value().options, stream);
}

}  // namespace thinwire
