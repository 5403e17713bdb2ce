// The table of feedback rules, and how a text becomes one of them.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/named_row.h"
#include "feedback/feedback_rules.h"

namespace thinwire {

std::vector<const FeedbackEntry*> list_feedbacks() {
  return {&none_entry(), &residual_entry(), &lowpass_entry(),  &dgc_memory_entry(), &ef21_entry(),
          &loco_entry(), &efmixed_entry(),  &momentum_entry(), &velocity_entry(),   &ahead_entry()};
}

Result<NamedFeedback> find_feedback(std::string_view spec) {
  auto named = find_named_row(list_feedbacks(), "feedback", spec);
  if (!named) return named.status();
  return NamedFeedback{.entry = named.value().row, .options = std::move(named.value().options)};
}

Result<std::unique_ptr<Feedback>> make_feedback(std::string_view spec, const StreamSpec& stream) {
  Result<NamedFeedback> found = find_feedback(spec);
  if (!found) return found.status();
  return found.value().entry->make(found.value().options, stream);
}

}  // namespace thinwire
