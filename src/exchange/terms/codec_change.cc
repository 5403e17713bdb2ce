// Changes an exchange's options, keeps the memories with debts, and refuses what would lose them.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/terms/codec_change.h"

#include <algorithm>
#include <utility>

#include "exchange/terms/agreement_text.h"
#include "feedback/momentum_rules.h"
#include "feedback/velocity_successor.h"
#include "thinwire/feedback.h"
#include "thinwire/momentum.h"

namespace thinwire {
namespace {

// The memory that a section has; owed things lie in it, or at owners beside it.
struct Kept {
  std::string feedback = "none";
  std::optional<Grouping> grouping;  // absent: nothing is owed
};

Status refuse(const std::string& why) {
  return Status::fail(ErrorCode::kBadOption, "change: " + why);
}

bool share_a_tensor(const Section& a, const Section& b) {
  return std::any_of(a.tensors.begin(), a.tensors.end(), [&](size_t tensor) {
    return std::binary_search(b.tensors.begin(), b.tensors.end(), tensor);
  });
}

// The grouping with the streams of before that the tensors go on with: the one that is asked for;
// where none is, that of before, if the codecs have it; or the one that every codec has.
Grouping grouping_after(const Section& next, Grouping before) {
  const bool asked = next.options.grouping.has_value();
  if (asked && is_one_stream(before) == is_one_stream(next.terms.grouping))
    return next.terms.grouping;
  ExchangeOptions as_before = next.options;
  as_before.grouping = before;
  if (!asked && resolve_terms(as_before, as_before.first_step)) return before;
  return is_one_stream(before) ? Grouping::kModel : Grouping::kTensor;
}

// The memory in which `next` goes on with what is in `held`. Where none is named, the momentum of
// an optimiser stays in the memory that holds it, whatever codec now sends what it owes. A velocity
// alone owes nothing; it goes on in the memory that holds momentum with the new codec.
Result<std::string> memory_after(const Section& next, const std::string& held) {
  const auto [entry, options] = find_feedback(held).value();
  if (next.options.feedback != "auto" || !entry->plain)
    return succeeds_velocity(next.terms.feedback, held) ? next.terms.feedback : held;
  const Momentum own = MomentumRules::momentum_of(options);
  if (own.momentum == 0) return held;
  Result<MomentumPlan> plan = place_momentum("memory", own, next.options);
  if (!plan) return plan.status();
  return succeeds_velocity(plan.value().feedback, held) ? plan.value().feedback : held;
}

Result<Kept> kept_by(const Section& next, const Sections& had, const std::vector<bool>& owes) {
  Kept kept{.feedback = next.terms.feedback, .grouping = std::nullopt};
  bool is_kept = false;  // so far it is the codec's own
  for (size_t i = 0; i < had.used.size(); ++i) {
    const Section& before = had.used[i];
    const std::string& memory = before.terms.feedback;
    if ((memory == "none" && !owes[i]) || !share_a_tensor(next, before)) continue;
    if (memory != "none") {
      Result<std::string> after = memory_after(next, memory);
      if (!after) return after.status();
      const bool holds_momentum = find_feedback(memory).value().entry->plain != nullptr;
      if (!is_kept &&
          (kept.feedback == "none" || (next.options.feedback == "auto" && holds_momentum)))
        kept.feedback = after.value();
      if (kept.feedback != after.value())
        return refuse("codec '" + next.options.codec + "' goes with memory " + kept.feedback +
                      ", and what '" + before.options.codec + "' left out is in memory " + memory +
                      "; a change keeps the memory, so name one for both from the beginning "
                      "(feedback)");
      is_kept = true;
    }
    if (is_one_stream(before.terms.grouping) && before.tensors != next.tensors)
      return refuse(
          "all tensors of '" + before.options.codec +
          "' share a memory, and rules would part them or add others; grouping \"tensor\" gives "
          "each its own from the beginning");
    kept.grouping = grouping_after(next, before.terms.grouping);
  }
  return kept;
}

// Gives every setting the memory that its section keeps.
Result<ExchangeOptions> keep_memories(ExchangeOptions next, const Sections& had,
                                      const std::vector<bool>& owes,
                                      const std::vector<TensorSpec>& tensors) {
  Result<Sections> resolved = resolve_sections(next, tensors, next.first_step);
  if (!resolved) return resolved.status();
  const Sections& sections = resolved.value();
  for (size_t setting = 0; setting < sections.of_setting.size(); ++setting) {
    if (sections.of_setting[setting] == kUnused) continue;
    Result<Kept> kept = kept_by(sections.used[sections.of_setting[setting]], had, owes);
    if (!kept) return kept.status();
    if (!kept.value().grouping) continue;
    auto& feedback = setting == 0 ? next.feedback : next.rules[setting - 1].feedback;
    auto& grouping = setting == 0 ? next.grouping : next.rules[setting - 1].grouping;
    feedback = kept.value().feedback;
    grouping = kept.value().grouping;
  }
  return next;
}

}  // namespace

// Twice: what differed in its memory alone is one section once that is the same.
Result<ExchangeOptions> changed_options(const ExchangeOptions& now, const Sections& sections,
                                        const std::vector<bool>& owes, const ExchangeOptions& asked,
                                        const std::vector<TensorSpec>& tensors, uint64_t step) {
  if (fixed_text(asked) != fixed_text(now))
    return refuse(
        "codec, feedback, method, grouping, rules and steps_per_epoch can change, and another "
        "option of the exchange differs");
  ExchangeOptions next = now;
  next.codec = asked.codec;
  next.feedback = asked.feedback;
  next.method = asked.method;
  next.grouping = asked.grouping;
  next.rules = asked.rules;
  next.steps_per_epoch = asked.steps_per_epoch;
  next.first_step = step;
  Result<ExchangeOptions> once = keep_memories(std::move(next), sections, owes, tensors);
  if (!once) return once;
  return keep_memories(std::move(once.value()), sections, owes, tensors);
}

std::string change_text(ExchangeOptions asked, Result<ExchangeOptions>& changed, uint64_t step) {
  asked.first_step = step;
  std::string text = "step " + std::to_string(step) + "\nsteps per epoch " +
                     std::to_string(asked.steps_per_epoch) + "\n";
  const std::vector<ExchangeOptions> settings = settings_of(asked);
  for (size_t i = 0; i < settings.size(); ++i)
    text += setting_text(settings[i], name_of_setting(asked, i));
  if (!changed) return text + "mistake " + changed.status().message() + "\n";
  const std::vector<ExchangeOptions> kept = settings_of(changed.value());
  for (size_t i = 0; i < kept.size(); ++i)
    text += setting_text(kept[i], "with the memory of before: " + name_of_setting(asked, i));
  return text;
}

}  // namespace thinwire
